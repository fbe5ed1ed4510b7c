/* The state of externs, and its use by the program and the control plane. */

#include "switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool externs_create(struct externs *externs)
{
    bool enough = true;
    externs->log_file = -1;
    externs->meters = needed(zeroed(program.meters, sizeof *externs->meters));
    for (uint32_t i = 0; i < program.meters; i++)
        enough &= !!(externs->meters[i] = zeroed(program.meter_size[i], sizeof **externs->meters));
    return enough;
}

void externs_destroy(struct externs *externs)
{
    for (uint32_t i = 0; i < program.meters; i++)
        free(externs->meters[i]);
    free(externs->meters);
}

/* ---- meters ------------------------------------------------------------------------------------ */

int64_t rt_meter(struct sw *sw, uint32_t meter, uint64_t index, uint32_t input)
{
    if (index >= program.meter_size[meter])
        return -1;
    return meter_colour(&sw->externs.meters[meter][index], rt_now_us(sw), input);
}

uint32_t rt_direct_meter(struct sw *sw, struct entry *entry, uint32_t input)
{
    return entry->meter ? meter_colour(entry->meter, rt_now_us(sw), input) : GREEN;
}

/* Configures cells. With NULL, they are always green. The indices must be inside of the array. */
void rt_set_meter(struct sw *sw, uint32_t meter, uint32_t first, uint32_t cells,
                  const struct meter_config *config)
{
    rt_hold(sw);
    for (uint32_t i = 0; i < cells; i++)
        configure_meter(&sw->externs.meters[meter][first + i], config);
    rt_release(sw);
}

void rt_set_direct_meter(struct sw *sw, uint32_t table, uint32_t id,
                         const struct meter_config *config)
{
    rt_hold(sw);
    struct entry *entry = find_entry(sw, table, id);
    if (!entry->meter)
        entry->meter = needed(zeroed(1, sizeof *entry->meter));
    configure_meter(entry->meter, config);
    rt_release(sw);
}

/* ---- random numbers ---------------------------------------------------------------------------- */

void rt_seed(struct sw *sw, uint64_t seed)
{
    rt_hold(sw);
    sw->externs.random = seed;
    rt_release(sw);
}

/* SplitMix64. */
uint64_t rt_random(struct sw *sw)
{
    uint64_t x = sw->externs.random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Returns a uniform random number from `low` to `high`, both included. `low` is at most `high`. */
uint64_t rt_random_between(struct sw *sw, uint64_t low, uint64_t high)
{
    uint64_t choices = high - low + 1;
    if (!choices)
        return rt_random(sw); /* all 2**64 numbers */
    uint64_t unfair =
        -choices % choices; /* low halves of the product below this would weigh more */
    for (;;) {
        uint128_t product = (uint128_t)rt_random(sw) * choices;
        if ((uint64_t)product >= unfair)
            return low + (uint64_t)(product >> 64);
    }
}

/* ---- the program's log ------------------------------------------------------------------------- */

bool rt_logging(struct sw *sw) { return sw->externs.log_file >= 0; }

void rt_set_log(struct sw *sw, int file)
{
    rt_hold(sw);
    sw->externs.log_file = file;
    rt_release(sw);
}

/* Writes a line to the log at once, or loses it if the file cannot take it. */
void rt_log_line(struct sw *sw, const char *line, size_t bytes)
{
    ssize_t written = write(sw->externs.log_file, line, bytes);
    (void)written;
}

enum { MAX_WORDS = 257, MAX_DIGITS = 20 * MAX_WORDS };

/* Divides a number by ten. Returns the remainder. */
static uint32_t divide_by_ten(uint64_t *word, uint32_t count)
{
    uint128_t rest = 0;
    for (uint32_t i = count; i-- > 0;) {
        rest = rest << 64 | word[i];
        word[i] = (uint64_t)(rest / 10);
        rest %= 10;
    }
    return (uint32_t)rest;
}

static bool is_zero(const uint64_t *word, uint32_t count)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < count; i++)
        any |= word[i];
    return !any;
}

/* Writes a number whose last digit stands in front of `end`. Returns its beginning. */
static char *decimal(char *end, struct logged value)
{
    uint64_t word[MAX_WORDS] = {(uint64_t)value.bits, (uint64_t)(value.bits >> 64)};
    uint32_t count = value.words ? value.count : 2;
    if (value.words)
        memcpy(word, value.words, count * sizeof *word);
    bool negative = value.is_signed && word[count - 1] >> 63;
    for (uint32_t i = 0, carry = 1; negative && i < count; i++) {
        word[i] = ~word[i] + carry;
        carry = carry && !word[i];
    }
    do
        *--end = (char)('0' + divide_by_ten(word, count));
    while (!is_zero(word, count));
    if (negative)
        *--end = '-';
    return end;
}

/* Logs `count` values between count + 1 parts of text. A line that is too long is cut. */
void rt_log(struct sw *sw, const char *const *parts, const struct logged *values, uint32_t count)
{
    char line[1024], number[MAX_DIGITS];
    number[MAX_DIGITS - 1] = 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i <= count; i++) {
        const char *value = i < count ? decimal(number + MAX_DIGITS - 1, values[i]) : "";
        int more = snprintf(line + used, sizeof line - used, "%s%s", parts[i], value);
        if (more < 0 || (uint32_t)more >= sizeof line - used) {
            used = sizeof line - 1;
            break;
        }
        used += (uint32_t)more;
    }
    line[used++] = '\n';
    rt_log_line(sw, line, used);
}

void rt_assertion_failed(struct sw *sw, const char *what)
{
    enum { MAX_MESSAGES = 10 }; /* one failing packet in a thousand must not fill a disk */
    if (sw->externs.failed_assertions++ < MAX_MESSAGES)
        fprintf(stderr, "assertion failed, the packet is dropped: %s\n", what);
}
