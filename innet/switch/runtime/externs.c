/* The state of externs, and what the program and the control plane do with it. */

#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void externs_create(struct externs *externs)
{
    externs->log_file = -1;
    externs->meters = calloc(layout.meters + 1, sizeof *externs->meters);
    for (u32 i = 0; i < layout.meters; i++)
        externs->meters[i] = calloc(layout.meter_size[i] + 1, sizeof **externs->meters);
}

static void free_calls(struct bundle *bundle)
{
    for (u32 i = 0; i < bundle->count; i++)
        free(bundle->calls[i].args);
    free(bundle->calls);
}

void externs_destroy(struct externs *externs)
{
    for (u32 i = 0; i < layout.meters; i++)
        free(externs->meters[i]);
    for (u32 i = 0; i < externs->bundle_count; i++)
        if (externs->bundles[i]) {
            free_calls(externs->bundles[i]);
            free(externs->bundles[i]);
        }
    free(externs->bundles);
    free(externs->meters);
}

/* ---- meters ------------------------------------------------------------------------------------ */

i64 rt_meter(struct sw *sw, u32 meter, u64 index, u32 input)
{
    if (index >= layout.meter_size[meter])
        return -1;
    return meter_colour(&rt_externs(sw)->meters[meter][index], rt_now_us(sw), input);
}

u32 rt_direct_meter(struct sw *sw, struct entry *entry, u32 input)
{
    return entry->meter ? meter_colour(entry->meter, rt_now_us(sw), input) : GREEN;
}

/* Configure one cell, or with NULL make it green again. The index is inside of the array. */
void rt_set_meter(struct sw *sw, u32 meter, u32 index, const struct meter_config *config)
{
    rt_hold(sw);
    configure_meter(&rt_externs(sw)->meters[meter][index], config);
    rt_release(sw);
}

void rt_set_direct_meter(struct sw *sw, u32 table, u32 id, const struct meter_config *config)
{
    rt_hold(sw);
    struct entry *entry = rt_entry(sw, table, id);
    if (!entry->meter)
        entry->meter = malloc(sizeof *entry->meter);
    configure_meter(entry->meter, config);
    rt_release(sw);
}

/* ---- action profiles --------------------------------------------------------------------------- */

struct bundle *find_bundle(const struct externs *externs, u32 id)
{
    return id < externs->bundle_count ? externs->bundles[id] : NULL;
}

static struct bundle *make_bundle(struct externs *externs, u32 id)
{
    if (id >= externs->bundle_count) {
        u32 more = id * 2 + 8;
        externs->bundles = realloc(externs->bundles, more * sizeof *externs->bundles);
        for (u32 i = externs->bundle_count; i < more; i++)
            externs->bundles[i] = NULL;
        externs->bundle_count = more;
    }
    if (!externs->bundles[id])
        externs->bundles[id] = calloc(1, sizeof **externs->bundles);
    return externs->bundles[id];
}

/* Set what entries with this bundle choose of: for each call an action and its `words` of arguments,
 * which stand one behind the other. The ids are small. */
void rt_set_bundle(struct sw *sw, u32 id, u32 count, const u32 *actions, const u32 *words,
                   const u64 *args)
{
    rt_hold(sw);
    struct bundle *bundle = make_bundle(rt_externs(sw), id);
    free_calls(bundle);
    bundle->count = count;
    bundle->calls = calloc(count + 1, sizeof *bundle->calls);
    for (u32 i = 0; i < count; i++) {
        bundle->calls[i] = (struct call){actions[i], calloc(words[i] + 1, sizeof *args)};
        memcpy(bundle->calls[i].args, args, words[i] * sizeof *args);
        args += words[i];
    }
    rt_release(sw);
}

/* No entry has it any more. */
void rt_remove_bundle(struct sw *sw, u32 id)
{
    rt_hold(sw);
    struct externs *externs = rt_externs(sw);
    free_calls(externs->bundles[id]);
    free(externs->bundles[id]);
    externs->bundles[id] = NULL;
    rt_release(sw);
}

/* ---- random numbers ---------------------------------------------------------------------------- */

void rt_seed(struct sw *sw, u64 seed)
{
    rt_hold(sw);
    rt_externs(sw)->random = seed;
    rt_release(sw);
}

/* SplitMix64. */
u64 rt_random(struct sw *sw)
{
    u64 x = rt_externs(sw)->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Uniform among `low` to `high`, both included, of which low is not the larger. */
u64 rt_random_between(struct sw *sw, u64 low, u64 high)
{
    u64 choices = high - low + 1;
    if (!choices)
        return rt_random(sw); /* all 2**64 numbers */
    u64 unfair = -choices % choices; /* the top of the product's low half that would weigh more */
    for (;;) {
        u128 product = (u128)rt_random(sw) * choices;
        if ((u64)product >= unfair)
            return low + (u64)(product >> 64);
    }
}

/* ---- the program's log ------------------------------------------------------------------------- */

bool rt_logging(struct sw *sw) { return rt_externs(sw)->log_file >= 0; }

void rt_set_log(struct sw *sw, int file)
{
    rt_hold(sw);
    rt_externs(sw)->log_file = file;
    rt_release(sw);
}

static char *decimal(char *end, struct logged value)
{
    bool negative = value.is_signed && value.bits >> 127;
    u128 left = negative ? -value.bits : value.bits;
    do
        *--end = (char)('0' + (int)(left % 10));
    while (left /= 10);
    if (negative)
        *--end = '-';
    return end;
}

/* `count` values between count + 1 parts. A line that is too long is cut. */
void rt_log(struct sw *sw, const char *const *parts, const struct logged *values, u32 count)
{
    char line[1024], number[48];
    u32 used = 0;
    for (u32 i = 0; i <= count; i++) {
        number[47] = 0;
        const char *value = i < count ? decimal(number + 47, values[i]) : "";
        int more = snprintf(line + used, sizeof line - used, "%s%s", parts[i], value);
        if (more < 0 || (u32)more >= sizeof line - used) {
            used = sizeof line - 1;
            break;
        }
        used += (u32)more;
    }
    line[used++] = '\n';
    ssize_t written = write(rt_externs(sw)->log_file, line, used);
    (void)written;
}

void rt_assertion_failed(struct sw *sw, const char *what)
{
    enum { MOST_MESSAGES = 10 }; /* a packet in a thousand must not fill a disk */
    if (rt_externs(sw)->failed_assertions++ < MOST_MESSAGES)
        fprintf(stderr, "assertion failed, the packet is dropped: %s\n", what);
}

u64 rt_failed_assertions(struct sw *sw)
{
    rt_hold(sw);
    u64 count = rt_externs(sw)->failed_assertions;
    rt_release(sw);
    return count;
}
