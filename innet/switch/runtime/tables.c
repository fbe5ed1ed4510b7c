/* The state that packets look up and the control plane writes: table entries, bundles of actions,
 * counters and registers. */

#include "cores.h"

#include <stdlib.h>

/* ---- creation ---------------------------------------------------------------------------------- */

bool tables_create(struct sw *sw)
{
    bool enough = true;
    sw->tables = needed(zeroed(program.tables, sizeof *sw->tables));
    for (uint32_t i = 0; i < program.tables; i++) {
        sw->tables[i].key_bytes = program.key_bytes[i];
        sw->tables[i].miss.action = program.default_action[i];
        sw->tables[i].miss.args = needed(zeroed(1, sizeof(uint64_t)));
    }
    sw->counters = needed(zeroed(program.counters, sizeof *sw->counters));
    for (uint32_t i = 0; i < program.counters; i++)
        enough &= !!(sw->counters[i] = zeroed(program.counter_size[i], sizeof **sw->counters));
    enough &= !!(sw->state = pages(program.state_bytes));
    return enough;
}

static void free_entry(struct entry *entry)
{
    free(entry->args);
    free(entry->meter);
    free(entry->key);
    free(entry);
}

static void clear_table(struct table *table)
{
    for (uint32_t i = 0; i < table->ids; i++)
        if (table->by_id[i])
            free_entry(table->by_id[i]);
    for (uint32_t i = 0; i < table->group_count; i++) {
        free(table->groups[i].bucket);
        free(table->groups[i].mask);
    }
    free(table->by_id);
    for (uint32_t level = 0; level < RT_ID_LEVELS; level++)
        free(table->free_ids[level]);
    free(table->groups);
    free(table->miss.args);
}

static void free_calls(struct bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->count; i++)
        free(bundle->calls[i].args);
    free(bundle->calls);
}

void tables_destroy(struct sw *sw)
{
    for (uint32_t i = 0; i < program.tables; i++)
        clear_table(&sw->tables[i]);
    for (uint32_t i = 0; i < program.counters; i++)
        free(sw->counters[i]);
    for (uint32_t i = 0; i < sw->bundle_count; i++)
        if (sw->bundles[i]) {
            free_calls(sw->bundles[i]);
            free(sw->bundles[i]);
        }
    free(sw->bundles);
    free(sw->tables);
    free(sw->counters);
    free_pages(sw->state, program.state_bytes);
}

/* ---- lookup ------------------------------------------------------------------------------------ */

/* Keys are padded with zeros to whole 64-bit words. */
static inline uint32_t hash_key(const uint8_t *key, const uint8_t *mask, uint32_t bytes)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word, keep;
        memcpy(&word, key + i, 8);
        memcpy(&keep, mask + i, 8);
        hash = (hash ^ (word & keep)) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static inline bool same_key(const struct entry *entry, const uint8_t *key, const uint8_t *mask,
                            uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word, keep, wanted;
        memcpy(&word, key + i, 8);
        memcpy(&keep, mask + i, 8);
        memcpy(&wanted, entry->key + i, 8);
        if ((word & keep) != wanted)
            return false;
    }
    return true;
}

/* Compares a component of two keys: a native number or, if it is too wide, an array of bytes. */
static int compare_component(const uint8_t *a, const uint8_t *b, const struct span *span)
{
    uint128_t left = 0, right = 0;
    if (span->bytes > sizeof left)
        return memcmp(a + span->first, b + span->first, span->bytes);
    memcpy(&left, a + span->first, span->bytes);
    memcpy(&right, b + span->first, span->bytes);
    return left < right ? -1 : left > right;
}

/* Returns whether all components that are matched by a range lie in the entry's ranges. */
static bool in_bounds(const struct entry *entry, const uint8_t *key, const struct span *spans,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (compare_component(key, entry->low, &spans[i]) < 0
            || compare_component(key, entry->high, &spans[i]) > 0)
            return false;
    return true;
}

/* Returns the matching entry of the highest priority, or NULL. Among equals the lowest id wins. */
RT_INLINE struct entry *find_best(const struct table *table, const uint8_t *key, uint32_t bytes,
                                  const struct span *spans, uint32_t span_count)
{
    struct entry *best = NULL;
    for (uint32_t i = 0; i < table->group_count; i++) {
        struct group *group = &table->groups[i];
        if (best && best->priority > group->top_priority)
            break; /* no entry of this group or the later ones has a higher priority */
        uint32_t hash = hash_key(key, group->mask, bytes);
        for (struct entry *e = group->bucket[hash & (group->buckets - 1)]; e; e = e->next)
            if (e->hash == hash && same_key(e, key, group->mask, bytes)
                && in_bounds(e, key, spans, span_count)
                && (!best || e->priority > best->priority
                    || (e->priority == best->priority && e->id < best->id)))
                best = e;
    }
    return best;
}

static inline struct entry *noted(struct sw *sw, struct table *table, struct entry *found)
{
    if (found) {
        found->last_hit = sw->now;
        table->hits++;
    }
    return found;
}

RT_INLINE struct entry *look_up(struct sw *sw, uint32_t table_id, const uint8_t *key,
                                uint32_t bytes, const struct span *spans, uint32_t span_count)
{
    struct table *table = &sw->tables[table_id];
    return noted(sw, table, find_best(table, key, bytes, spans, span_count));
}

/* Returns the answer to an earlier lookup of this key, or looks it up. Packets often have few different
 * keys, and a lookup in a table takes a search for every mask. */
static struct entry *recall(struct table *table, const uint8_t *key)
{
    uint64_t word;
    memcpy(&word, key, sizeof word);
    struct answer *answer = &table->answers[word * 0x9e3779b97f4a7c15u >> 32 & (ANSWERS - 1)];
    if (!answer->is_known || answer->key != word)
        *answer = (struct answer){word, find_best(table, key, sizeof word, NULL, 0), true};
    return answer->entry;
}

static void forget_answers(struct table *table)
{
    memset(table->answers, 0, sizeof table->answers);
}

struct entry *rt_lookup(struct sw *sw, uint32_t table, const uint8_t *key)
{
    return look_up(sw, table, key, program.key_bytes[table], program.spans[table],
                   program.span_count[table]);
}

/* Lookups for keys of one and of two words without ranges, which are the most common ones. */
struct entry *rt_lookup_8(struct sw *sw, uint32_t table_id, const uint8_t *key)
{
    struct table *table = &sw->tables[table_id];
    return noted(sw, table, recall(table, key));
}

struct entry *rt_lookup_16(struct sw *sw, uint32_t table, const uint8_t *key)
{
    return look_up(sw, table, key, 16, NULL, 0);
}

/* ---- action profiles --------------------------------------------------------------------------- */

static uint64_t *copy_args(const uint64_t *args, uint32_t words)
{
    uint64_t *copy = needed(zeroed(words, sizeof *copy));
    memcpy(copy, args, (size_t)words * sizeof *copy);
    return copy;
}

static struct bundle *find_bundle(const struct sw *sw, uint32_t id)
{
    return id < sw->bundle_count ? sw->bundles[id] : NULL;
}

static struct bundle *make_bundle(struct sw *sw, uint32_t id)
{
    if (id >= sw->bundle_count) {
        uint32_t more = id * 2 + 8;
        sw->bundles = resized(sw->bundles, more, sizeof *sw->bundles);
        for (uint32_t i = sw->bundle_count; i < more; i++)
            sw->bundles[i] = NULL;
        sw->bundle_count = more;
    }
    if (!sw->bundles[id])
        sw->bundles[id] = needed(zeroed(1, sizeof **sw->bundles));
    return sw->bundles[id];
}

/* Sets the calls from which entries with this bundle choose. Each call has an action and a number of
 * words, and the arguments of all calls follow one another. Ids are small. */
void rt_set_bundle(struct sw *sw, uint32_t id, uint32_t count, const uint32_t *actions,
                   const uint32_t *words, const uint64_t *args)
{
    rt_hold(sw);
    struct bundle *bundle = make_bundle(sw, id);
    free_calls(bundle);
    bundle->count = count;
    bundle->calls = needed(zeroed(count, sizeof *bundle->calls));
    for (uint32_t i = 0; i < count; i++) {
        bundle->calls[i] = (struct call){actions[i], copy_args(args, words[i])};
        args += words[i];
    }
    rt_release(sw);
}

/* Removes a bundle that no entry uses any more. */
void rt_remove_bundle(struct sw *sw, uint32_t id)
{
    rt_hold(sw);
    free_calls(sw->bundles[id]);
    free(sw->bundles[id]);
    sw->bundles[id] = NULL;
    rt_release(sw);
}

/* ---- entries ----------------------------------------------------------------------------------- */

struct entry *find_entry(struct sw *sw, uint32_t table, uint32_t id)
{
    return id == RT_MISS ? &sw->tables[table].miss : sw->tables[table].by_id[id];
}

static void link_entry(struct group *group, struct entry *entry)
{
    struct entry **bucket = &group->bucket[entry->hash & (group->buckets - 1)];
    entry->next = *bucket;
    *bucket = entry;
}

static void grow_group(struct group *group)
{
    uint32_t old = group->buckets;
    struct entry **bucket = group->bucket;
    group->buckets = old ? old * 2 : 4;
    group->bucket = needed(zeroed(group->buckets, sizeof *group->bucket));
    for (uint32_t i = 0; i < old; i++)
        for (struct entry *e = bucket[i], *next; e; e = next) {
            next = e->next;
            link_entry(group, e);
        }
    free(bucket);
}

static int by_top_priority(const void *a, const void *b)
{
    uint32_t left = ((const struct group *)a)->top_priority;
    uint32_t right = ((const struct group *)b)->top_priority;
    return left < right ? 1 : left > right ? -1 : 0;
}

static struct group *find_group(struct table *table, const uint8_t *mask)
{
    for (uint32_t i = 0; i < table->group_count; i++)
        if (!memcmp(table->groups[i].mask, mask, table->key_bytes))
            return &table->groups[i];
    table->groups = resized(table->groups, (size_t)table->group_count + 1, sizeof *table->groups);
    struct group *group = &table->groups[table->group_count++];
    *group = (struct group){.mask = needed(zeroed(1, (size_t)table->key_bytes + 1))};
    memcpy(group->mask, mask, table->key_bytes);
    return group;
}

static void give_id(struct table *table, uint32_t id)
{
    bool was_empty = true;
    for (uint32_t level = 0; was_empty && level < RT_ID_LEVELS; level++, id /= 64) {
        uint64_t *word = &table->free_ids[level][id / 64];
        was_empty = !*word;
        *word |= (uint64_t)1 << id % 64;
    }
}

static void grow_ids(struct table *table)
{
    uint32_t old = table->ids, words = old, old_words = old;
    table->ids = words = old ? old * 2 : 64;
    table->by_id = resized(table->by_id, table->ids, sizeof *table->by_id);
    memset(table->by_id + old, 0, (table->ids - old) * sizeof *table->by_id);
    for (uint32_t level = 0; level < RT_ID_LEVELS; level++) {
        words = (words + 63) / 64;
        old_words = (old_words + 63) / 64;
        table->free_ids[level] = resized(table->free_ids[level], words, sizeof(uint64_t));
        memset(table->free_ids[level] + old_words, 0, (words - old_words) * sizeof(uint64_t));
    }
    for (uint32_t id = old; id < table->ids; id++)
        give_id(table, id);
}

/* Takes the lowest free id, as in BMv2. */
static uint32_t take_id(struct table *table)
{
    if (!table->ids || !table->free_ids[RT_ID_LEVELS - 1][0])
        grow_ids(table);
    uint32_t id = 0;
    for (uint32_t level = RT_ID_LEVELS; level-- > 0;)
        id = id * 64 + (uint32_t)__builtin_ctzll(table->free_ids[level][id]);
    bool is_empty = true;
    for (uint32_t level = 0, at = id; is_empty && level < RT_ID_LEVELS; level++, at /= 64) {
        uint64_t *word = &table->free_ids[level][at / 64];
        *word &= ~((uint64_t)1 << at % 64);
        is_empty = !*word;
    }
    return id;
}

/* Keys and masks have the table's key_bytes. In the table's spans they are lower and upper bounds. */
static void set_key(struct entry *entry, uint32_t table, const uint8_t *key, const uint8_t *mask)
{
    uint32_t bytes = program.key_bytes[table];
    entry->key = needed(zeroed(4, (size_t)bytes + 1));
    entry->mask = entry->key + bytes;
    entry->low = entry->mask + bytes;
    entry->high = entry->low + bytes;
    memcpy(entry->low, key, bytes);
    memcpy(entry->high, mask, bytes);
    memcpy(entry->mask, mask, bytes);
    for (uint32_t i = 0; i < program.span_count[table]; i++)
        memset(entry->mask + program.spans[table][i].first, 0, program.spans[table][i].bytes);
    for (uint32_t i = 0; i < bytes; i++)
        entry->key[i] = key[i] & entry->mask[i];
    entry->hash = hash_key(key, entry->mask, bytes);
}

/* Returns the new entry's id. In a table with a profile the bundle counts and not the action.
 * Otherwise the bundle is RT_NO_BUNDLE. */
uint32_t rt_insert(struct sw *sw, uint32_t table_id, const uint8_t *key, const uint8_t *mask,
                   uint32_t priority, uint32_t action, const uint64_t *args, uint32_t words,
                   uint32_t bundle)
{
    rt_hold(sw);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = needed(zeroed(1, sizeof *entry));
    set_key(entry, table_id, key, mask);
    entry->bundle = find_bundle(sw, bundle);
    entry->action = action;
    entry->priority = priority;
    entry->args = copy_args(args, words);
    entry->last_hit = now_ns(sw);
    entry->id = take_id(table);
    table->by_id[entry->id] = entry;
    struct group *group = find_group(table, entry->mask);
    if (group->used == group->buckets)
        grow_group(group);
    group->used++;
    link_entry(group, entry);
    if (priority > group->top_priority)
        group->top_priority = priority;
    qsort(table->groups, table->group_count, sizeof *table->groups, by_top_priority);
    forget_answers(table);
    rt_release(sw);
    return entry->id;
}

static void drop_group(struct table *table, struct group *group)
{
    free(group->bucket);
    free(group->mask);
    size_t after = (size_t)(table->groups + table->group_count - (group + 1));
    memmove(group, group + 1, after * sizeof *group);
    table->group_count--;
}

void rt_remove(struct sw *sw, uint32_t table_id, uint32_t id)
{
    rt_hold(sw);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = table->by_id[id];
    struct group *group = find_group(table, entry->mask);
    struct entry **link = &group->bucket[entry->hash & (group->buckets - 1)];
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    table->by_id[id] = NULL;
    give_id(table, id);
    free_entry(entry);
    if (--group->used == 0)
        drop_group(table, group);
    forget_answers(table);
    rt_release(sw);
}

/* `id` is an entry's, or RT_MISS for the default action. */
void rt_set_action(struct sw *sw, uint32_t table, uint32_t id, uint32_t action,
                   const uint64_t *args, uint32_t words, uint32_t bundle)
{
    rt_hold(sw);
    struct entry *entry = find_entry(sw, table, id);
    free(entry->args);
    entry->bundle = find_bundle(sw, bundle);
    entry->action = action;
    entry->args = copy_args(args, words);
    rt_release(sw);
}

/* ---- counts and registers ---------------------------------------------------------------------- */

/* Sets this core's count to `with`, and `with` to 0, so that the next core's count becomes 0. If not
 * `set`, adds this core's count to `with`. */
static void exchange_count(struct sw *sw, struct count *count, struct count *with, bool set)
{
    rt_hold(sw);
    if (set) {
        *count = *with;
        *with = (struct count){0};
    } else {
        add_count(with, count);
    }
    rt_release(sw);
}

void rt_entry_count(struct sw *sw, uint32_t table_id, uint32_t id, struct count *with, bool set)
{
    struct table *table = &sw->tables[table_id];
    exchange_count(sw, id == RT_MISS ? &table->miss.hits : &table->by_id[id]->hits, with, set);
}

/* Does the same for several cells. The indices must be inside of the array. */
void rt_counter(struct sw *sw, uint32_t counter, uint32_t first, uint32_t cells, struct count *with,
                bool set)
{
    rt_hold(sw);
    for (uint32_t i = 0; i < cells; i++)
        exchange_count(sw, &sw->counters[counter][first + i], &with[i], set);
    rt_release(sw);
}

/* Returns the nanoseconds since a packet last matched the entry, or since it was inserted. */
uint64_t rt_entry_idle(struct sw *sw, uint32_t table, uint32_t id)
{
    rt_hold(sw);
    uint64_t now = now_ns(sw), last = sw->tables[table].by_id[id]->last_hit;
    rt_release(sw);
    return now > last ? now - last : 0;
}

struct table_counts { uint64_t hits, misses; };

/* Adds this core's counts. */
void rt_table_counts(struct sw *sw, uint32_t table, struct table_counts *counts)
{
    rt_hold(sw);
    counts->hits += sw->tables[table].hits;
    counts->misses += sw->tables[table].misses;
    rt_release(sw);
}

uint32_t rt_register_bytes(uint32_t number) { return program.registers[number].bytes; }

/* Reads those cells of a register that this core owns, or sets cells. They have the form of C's memory:
 * up to 128 bits little-endian, wider ones most significant byte first. */
void rt_register(struct sw *sw, uint32_t number, uint32_t first, uint32_t count, uint8_t *values,
                 bool set)
{
    const struct cells *cells = &program.registers[number];
    uint8_t *at = (uint8_t *)sw->state + cells->first + first * cells->stride;
    rt_hold(sw);
    for (uint32_t i = 0; i < count; i++, at += cells->stride, values += cells->bytes)
        if (set)
            memcpy(at, values, cells->bytes);
        else if (sw->cores == 1 || core_of_key(sw, first + i) == sw->core)
            memcpy(values, at, cells->bytes);
    rt_release(sw);
}
