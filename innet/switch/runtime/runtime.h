/* The interface between the generated program and the runtime. The program (program.c) knows the P4.
 * The runtime knows tables, ports and packets. One `sw` is one core of a running switch. */

#ifndef INNET_RUNTIME_H
#define INNET_RUNTIME_H

#include "constants.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned __int128 uint128_t;
typedef __int128 int128_t;

enum { RT_ID_LEVELS = 5 };

struct count { uint64_t packets, bytes; };
_Static_assert(sizeof(struct count) <= COUNTER_BYTES, "as in innet/switch/constants.py");

/* A table entry, or a default action. `args` holds two words (low, high) for each parameter of up to
 * 128 bits, and the bytes of wider ones. */
struct entry {
    uint64_t *args;
    struct count hits;
    uint64_t last_hit; /* in ns, by the switch's clock */
    uint32_t action;
    uint32_t priority;
    uint32_t id;
    uint32_t hash;
    uint8_t *key, *mask; /* the key is masked */
    uint8_t *low, *high; /* bounds in the table's spans; elsewhere key and mask, the key unmasked */
    const struct bundle *bundle; /* in a table with a profile: the actions to choose from */
    struct meter *meter;         /* NULL until it is configured */
    struct entry *next;
};

/* The actions of a bundle, in a table with a profile. `args` are as in an entry. */
struct call {
    uint32_t action;
    uint64_t *args;
};
struct bundle {
    uint32_t count;
    struct call *calls;
};

/* All entries of one mask, hashed. The groups of a table are in the order of `top_priority`, which is the
 * highest priority that an entry of the group has had. */
struct group {
    uint8_t *mask; /* without bits in the table's spans */
    uint32_t top_priority, used, buckets;
    struct entry **bucket;
};

/* The entry that a lookup of a key has found, or NULL. */
struct answer {
    uint64_t key;
    struct entry *entry;
    bool is_known;
};

enum { ANSWERS = 16 }; /* a power of two */

struct table {
    uint32_t key_bytes;
    struct group *groups;
    uint32_t group_count;
    struct entry **by_id;
    uint32_t ids;
    uint64_t *free_ids[RT_ID_LEVELS]; /* a bit per id, then per nonzero word of the level below */
    struct entry miss;
    uint64_t hits, misses;
    struct answer answers[ANSWERS]; /* of the latest lookups, since the entries changed */
};

struct sw;

/* A function that may change a frame which is about to leave, but not its size. */
typedef void egress_hook(void *context, uint8_t *frame, uint32_t bytes);

#include "externs.h"
#include "replication.h"

/* A component of a table's key: the position of its first byte, and its size. */
struct span { uint32_t first, bytes; };

/* The place of a register's cells in the program's state. */
struct cells {
    size_t first, stride;
    uint32_t bytes;
    size_t count;
};

/* The generated program's description of itself. */
struct program {
    uint32_t tables;
    const uint32_t *key_bytes; /* of each table */
    const uint32_t *default_action;
    const uint32_t *span_count; /* the components of each table's key that are matched by a range */
    const struct span *const *spans;
    uint32_t counters;
    const size_t *counter_size; /* 0 for direct counters */
    uint32_t meters;
    const size_t *meter_size; /* 0 for direct meters */
    const struct cells *registers;
    size_t state_bytes;    /* registers and any other state of the program */
    size_t phv_bytes;      /* of a packet that waits for another pass; 0 if none ever does */
    uint32_t header_bytes; /* the most that it writes in front of a payload */
    uint32_t learn_lists;  /* the number of kinds of digests */
    bool is_keyed;         /* packets with different keys may run on different cores */
    bool defers;           /* checksums may be partial while it runs */
};
extern const struct program program;

/* Takes one packet through the program: parse, ingress, copies, egress, deparse. */
void program_process(struct sw *sw, void *state, uint32_t port, const uint8_t *frame,
                     uint32_t length);

/* Returns the key of a frame: the index of all cells that the packet may access. */
uint64_t program_key(struct sw *sw, uint32_t port, const uint8_t *frame, uint32_t length);

/* Fetches the cells of a key into the cache. */
void program_fetch(void *state, uint64_t key);

/* Takes a packet through one more pass: from the parser on, or for a clone from the egress on. */
void program_again(struct sw *sw, void *state, struct pending *packet);
void program_clone(struct sw *sw, void *state, struct pending *packet);

/* Called by the program. */
struct entry *rt_lookup(struct sw *sw, uint32_t table, const uint8_t *key);
struct entry *rt_lookup_8(struct sw *sw, uint32_t table, const uint8_t *key);
struct entry *rt_lookup_16(struct sw *sw, uint32_t table, const uint8_t *key);
uint8_t *rt_room(struct sw *sw, uint32_t port, uint32_t bytes);
void rt_emit(struct sw *sw, uint32_t port, uint32_t bytes);
/* Computes the partial checksum of the frame that is being processed, before the program reads it. */
void rt_complete(struct sw *sw, struct path *path);
/* Says what has become of a partial checksum in a frame that leaves. `place` is that of the checksum's
 * field in it, if the parser has extracted the field, and 0 if it does not leave. */
void rt_defer(struct sw *sw, const struct path *path, uint32_t place, uint8_t *out,
              uint32_t head_bytes, const uint8_t *rest, uint32_t rest_bytes);
uint32_t rt_queue_depth(struct sw *sw, uint32_t port);
uint64_t rt_now_us(const struct sw *sw);
void rt_trace(struct sw *sw, const struct path *path, char level, const char *message, ...)
    __attribute__((format(printf, 4, 5)));
const char *rt_hex(char *text, const void *value, uint32_t bytes, uint32_t bits);
uint64_t rt_frame_number(struct sw *sw);
uint32_t rt_copy_number(struct sw *sw);

/* Returns an action's argument of up to 128 bits: two words, the low one first. */
static inline uint128_t rt_wide_arg(const uint64_t *args, uint32_t word)
{
    return (uint128_t)args[word + 1] << 64 | args[word];
}

/* Returns whether some bytes of a frame have a part of its partial checksum. */
static inline bool rt_is_partial(const struct path *path, uint32_t at, uint32_t bytes)
{
    return path->partial && path->partial + 1 - at < bytes + 1;
}

/* For functions that look too large to inline. With constant offset and width little is left of them. */
#define RT_INLINE static inline __attribute__((always_inline))

/* Returns 1 to 8 bytes as a number, most significant first. For a constant count it takes at most two
 * loads. They may overlap, because both read the same there. */
RT_INLINE uint64_t rt_bytes(const uint8_t *p, uint32_t bytes)
{
    uint64_t word;
    uint32_t high, low;
    uint16_t first, last;
    if (bytes == 8) {
        memcpy(&word, p, 8);
        return __builtin_bswap64(word);
    }
    if (bytes >= 4) {
        memcpy(&high, p, 4);
        memcpy(&low, p + bytes - 4, 4);
        return (uint64_t)__builtin_bswap32(high) << 8 * (bytes - 4) | __builtin_bswap32(low);
    }
    if (bytes >= 2) {
        memcpy(&first, p, 2);
        memcpy(&last, p + bytes - 2, 2);
        return (uint64_t)__builtin_bswap16(first) << 8 * (bytes - 2) | __builtin_bswap16(last);
    }
    return p[0];
}

/* Writes the lowest 1 to 8 bytes of a number, most significant first. */
RT_INLINE void rt_put_whole_bytes(uint8_t *p, uint32_t bytes, uint64_t value)
{
    if (bytes == 8) {
        value = __builtin_bswap64(value);
        memcpy(p, &value, 8);
    } else if (bytes >= 4) {
        uint32_t high = __builtin_bswap32((uint32_t)(value >> 8 * (bytes - 4)));
        uint32_t low = __builtin_bswap32((uint32_t)value);
        memcpy(p, &high, 4);
        memcpy(p + bytes - 4, &low, 4);
    } else if (bytes >= 2) {
        uint16_t first = __builtin_bswap16((uint16_t)(value >> 8 * (bytes - 2)));
        uint16_t last = __builtin_bswap16((uint16_t)value);
        memcpy(p, &first, 2);
        memcpy(p + bytes - 2, &last, 2);
    } else {
        p[0] = (uint8_t)value;
    }
}

/* Returns `width` bits (at most 64) that start `offset` bits into `p`, most significant first. */
RT_INLINE uint64_t rt_bits(const uint8_t *p, uint32_t offset, uint32_t width)
{
    uint32_t first = offset / 8, last = (offset + width + 7) / 8,
             behind = last * 8 - (offset + width);
    uint64_t value;
    if (!width)
        return 0;
    if (last - first <= 8)
        value = rt_bytes(p + first, last - first) >> behind;
    else
        value = rt_bytes(p + first, 8) << (8 - behind) | p[last - 1] >> behind;
    return width == 64 ? value : value & (((uint64_t)1 << width) - 1);
}

/* Writes `width` bits (at least 1) that lie in at most 8 bytes. */
RT_INLINE void rt_put_bits_of_word(uint8_t *p, uint32_t offset, uint32_t width, uint64_t value)
{
    uint32_t first = offset / 8, bytes = (offset + width + 7) / 8 - first;
    uint32_t behind = (first + bytes) * 8 - (offset + width);
    if (width < bytes * 8) {
        uint64_t mask = (((uint64_t)1 << width) - 1) << behind;
        value = (rt_bytes(p + first, bytes) & ~mask) | (value << behind & mask);
    }
    rt_put_whole_bytes(p + first, bytes, value);
}

RT_INLINE uint128_t rt_wide_bits(const uint8_t *p, uint32_t offset, uint32_t width)
{
    uint32_t high = width > 64 ? width - 64 : 0;
    uint128_t value = high ? rt_bits(p, offset, high) : 0;
    return value << (width - high) | rt_bits(p, offset + high, width - high);
}

/* Writes `width` bits (at most 128), `offset` bits into `p`, and leaves the bits around them alone. */
RT_INLINE void rt_put_bits(uint8_t *p, uint32_t offset, uint32_t width, uint128_t value)
{
    for (; offset % 8 + width > 64; value >>= 32, width -= 32)
        rt_put_bits_of_word(p, offset + width - 32, 32, (uint32_t)value);
    if (width)
        rt_put_bits_of_word(p, offset, width, (uint64_t)value);
}

/* words.c: runs of 32-bit fields, which are most of a wide header. */
void rt_load32(uint32_t *restrict to, const uint8_t *restrict p, uint32_t n);
void rt_store32(uint8_t *restrict p, const uint32_t *restrict from, uint32_t n);
uint64_t rt_weighted_sum(const uint32_t *words, uint32_t n, const uint64_t *weights);

/* RFC 1071's checksum of a sum of 16-bit numbers with all of its carries. */
static inline uint16_t rt_folded16(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Shortens a number. A sum with the shorter one has the same RFC 1071 checksum. */
static inline uint64_t rt_words16(uint64_t number) { return (number >> 32) + (uint32_t)number; }

/* RFC 1071's checksum of whole bytes, padded with zeros to 16 bits. */
static inline uint16_t rt_csum16(const uint8_t *p, uint32_t bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i + 1 < bytes; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    if (bytes % 2)
        sum += (uint32_t)p[bytes - 1] << 8;
    return rt_folded16(sum);
}

static inline int64_t rt_clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* A sum that saturates at 32 bits. It overflows if the wrapped sum's sign differs from the sign of both
 * operands. */
static inline int32_t rt_saturated_sum(int32_t a, int32_t b)
{
    uint32_t sum = (uint32_t)a + (uint32_t)b, limit = (uint32_t)(a >> 31) ^ INT32_MAX;
    return (int32_t)(((uint32_t)a ^ sum) & ((uint32_t)b ^ sum)) < 0 ? (int32_t)limit : (int32_t)sum;
}

static inline int32_t rt_saturated_difference(int32_t a, int32_t b)
{
    uint32_t difference = (uint32_t)a - (uint32_t)b, limit = (uint32_t)(a >> 31) ^ INT32_MAX;
    return (int32_t)((uint32_t)(a ^ b) & ((uint32_t)a ^ difference)) < 0 ? (int32_t)limit
                                                                         : (int32_t)difference;
}

static inline int128_t rt_wide_clamp(int128_t value, int128_t low, int128_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Returns `value` modulo 2**width, as a signed number of that width. */
static inline int128_t rt_signed(int128_t value, uint32_t width)
{
    uint32_t spare = 128 - width;
    return (int128_t)((uint128_t)value << spare) >> spare;
}

static inline int128_t rt_shift_left(int128_t value, int128_t by)
{
    return by > 127 ? 0 : (int128_t)((uint128_t)value << by);
}

static inline int128_t rt_unsigned_shift_right(int128_t value, int128_t by)
{
    return by > 127 ? 0 : (int128_t)((uint128_t)value >> by);
}

static inline int128_t rt_shift_right(int128_t value, int128_t by)
{
    return value >> (by > 127 ? 127 : by);
}

#include "fields.h"

#endif
