/* The interface between the generated program and the runtime. The program (program.c) knows the P4.
 * The runtime knows tables, ports and packets. One `sw` is one running switch. */

#ifndef INNET_RUNTIME_H
#define INNET_RUNTIME_H

#include "constants.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef unsigned __int128 u128;
typedef __int128 i128;

enum { RT_MAX_PORTS = 1024, RT_ID_LEVELS = 5 };

struct count { u64 packets, bytes; };
_Static_assert(sizeof(struct count) <= COUNTER_BYTES, "as in innet/switch/constants.py");

/* A table entry, or a default action. `args` holds two words (low, high) for each parameter of up to
 * 128 bits, and the bytes of wider ones. */
struct entry {
    u64 *args;
    struct count hits;
    u64 last_hit; /* in ns, by the switch's clock */
    u32 action;
    u32 priority;
    u32 id;
    u32 hash;
    u8 *key, *mask; /* the key is masked */
    u8 *low, *high; /* bounds in the table's spans; elsewhere key and mask, the key unmasked */
    const struct bundle *bundle; /* in a table with a profile: the actions to choose from */
    struct meter *meter;         /* NULL until it is configured */
    struct entry *next;
};

/* The actions of a bundle, in a table with a profile. `args` are as in an entry. */
struct call {
    u32 action;
    u64 *args;
};
struct bundle {
    u32 count;
    struct call *calls;
};

/* All entries of one mask, hashed. The groups of a table are in the order of their best entry. */
struct group {
    u8 *mask; /* without bits in the table's spans */
    u32 top_priority, used, buckets;
    struct entry **bucket;
};

struct table {
    u32 key_bytes;
    struct group *groups;
    u32 group_count;
    struct entry **by_id;
    u32 ids;
    u64 *free_ids[RT_ID_LEVELS]; /* a bit per id, then per nonzero word of the level below */
    struct entry miss;
    u64 hits, misses;
};

struct sw;

/* A function that may change a frame which is about to leave, but not its size. */
typedef void egress_hook(void *context, u8 *frame, u32 bytes);

#include "externs.h"
#include "replication.h"

/* The place of a register's cells in the program's state. */
struct cells {
    size_t first, stride;
    u32 bytes;
    size_t count;
};

/* The generated program's description of itself. */
struct program {
    u32 tables;
    const u32 *key_bytes; /* of each table */
    const u32 *default_action;
    u32 counters;
    const size_t *counter_size;
    const struct cells *registers;
    size_t state_bytes; /* registers and any other state of the program */
    size_t phv_bytes;   /* of a packet that waits for another pass; 0 if none ever does */
    u32 header_bytes;   /* the most that it writes in front of a payload */
    u32 learn_lists;    /* the number of kinds of digests */
    bool is_keyed;      /* packets with different keys may run on different cores */
};
extern const struct program program;

/* Takes one packet through the program: parse, ingress, copies, egress, deparse. */
void program_process(struct sw *sw, void *state, u32 port, const u8 *frame, u32 length);

/* Returns the key of a frame: the index of all cells that the packet may access. */
u64 program_key(struct sw *sw, u32 port, const u8 *frame, u32 length);

/* Takes a packet through one more pass: from the parser on, or for a clone from the egress on. */
void program_again(struct sw *sw, void *state, struct pending *packet);
void program_clone(struct sw *sw, void *state, struct pending *packet);

/* Called by the program. */
struct entry *rt_lookup(struct sw *sw, u32 table, const u8 *key);
struct entry *rt_lookup_8(struct sw *sw, u32 table, const u8 *key);
struct entry *rt_lookup_16(struct sw *sw, u32 table, const u8 *key);
u8 *rt_room(struct sw *sw, u32 port, u32 bytes);
void rt_emit(struct sw *sw, u32 port, u32 bytes);
u32 rt_queue_depth(struct sw *sw, u32 port);
u64 rt_now_us(const struct sw *sw);
void rt_trace(struct sw *sw, const struct path *path, char level, const char *message, ...)
    __attribute__((format(printf, 4, 5)));
const char *rt_hex(char *text, const void *value, u32 bytes, u32 bits);
u64 rt_frame_number(struct sw *sw);
u32 rt_copy_number(struct sw *sw);

/* Returns an action's argument of up to 128 bits: two words, the low one first. */
static inline u128 rt_wide_arg(const u64 *args, u32 word)
{
    return (u128)args[word + 1] << 64 | args[word];
}

/* For functions that look too large to inline. With constant offset and width little is left of them. */
#define RT_INLINE static inline __attribute__((always_inline))

/* Returns 1 to 8 bytes as a number, most significant first. For a constant count it takes at most two
 * loads. They may overlap, because both read the same there. */
RT_INLINE u64 rt_bytes(const u8 *p, u32 bytes)
{
    u64 word;
    u32 high, low;
    u16 first, last;
    if (bytes == 8) {
        memcpy(&word, p, 8);
        return __builtin_bswap64(word);
    }
    if (bytes >= 4) {
        memcpy(&high, p, 4);
        memcpy(&low, p + bytes - 4, 4);
        return (u64)__builtin_bswap32(high) << 8 * (bytes - 4) | __builtin_bswap32(low);
    }
    if (bytes >= 2) {
        memcpy(&first, p, 2);
        memcpy(&last, p + bytes - 2, 2);
        return (u64)__builtin_bswap16(first) << 8 * (bytes - 2) | __builtin_bswap16(last);
    }
    return p[0];
}

/* Writes the lowest 1 to 8 bytes of a number, most significant first. */
RT_INLINE void rt_put_whole_bytes(u8 *p, u32 bytes, u64 value)
{
    if (bytes == 8) {
        value = __builtin_bswap64(value);
        memcpy(p, &value, 8);
    } else if (bytes >= 4) {
        u32 high = __builtin_bswap32((u32)(value >> 8 * (bytes - 4)));
        u32 low = __builtin_bswap32((u32)value);
        memcpy(p, &high, 4);
        memcpy(p + bytes - 4, &low, 4);
    } else if (bytes >= 2) {
        u16 first = __builtin_bswap16((u16)(value >> 8 * (bytes - 2)));
        u16 last = __builtin_bswap16((u16)value);
        memcpy(p, &first, 2);
        memcpy(p + bytes - 2, &last, 2);
    } else {
        p[0] = (u8)value;
    }
}

/* Returns `width` bits (at most 64) that start `offset` bits into `p`, most significant first. */
RT_INLINE u64 rt_bits(const u8 *p, u32 offset, u32 width)
{
    u32 first = offset / 8, last = (offset + width + 7) / 8, behind = last * 8 - (offset + width);
    u64 value;
    if (!width)
        return 0;
    if (last - first <= 8)
        value = rt_bytes(p + first, last - first) >> behind;
    else
        value = rt_bytes(p + first, 8) << (8 - behind) | p[last - 1] >> behind;
    return width == 64 ? value : value & (((u64)1 << width) - 1);
}

/* Writes `width` bits (at least 1) that lie in at most 8 bytes. */
RT_INLINE void rt_put_bits_of_word(u8 *p, u32 offset, u32 width, u64 value)
{
    u32 first = offset / 8, bytes = (offset + width + 7) / 8 - first;
    u32 behind = (first + bytes) * 8 - (offset + width);
    if (width < bytes * 8) {
        u64 mask = (((u64)1 << width) - 1) << behind;
        value = (rt_bytes(p + first, bytes) & ~mask) | (value << behind & mask);
    }
    rt_put_whole_bytes(p + first, bytes, value);
}

RT_INLINE u128 rt_wide_bits(const u8 *p, u32 offset, u32 width)
{
    u32 high = width > 64 ? width - 64 : 0;
    u128 value = high ? rt_bits(p, offset, high) : 0;
    return value << (width - high) | rt_bits(p, offset + high, width - high);
}

/* Writes `width` bits (at most 128), `offset` bits into `p`, and leaves the bits around them alone. */
RT_INLINE void rt_put_bits(u8 *p, u32 offset, u32 width, u128 value)
{
    for (; offset % 8 + width > 64; value >>= 32, width -= 32)
        rt_put_bits_of_word(p, offset + width - 32, 32, (u32)value);
    if (width)
        rt_put_bits_of_word(p, offset, width, (u64)value);
}

/* words.c: runs of 32-bit fields, which are most of a wide header, from a packet and to it. */
void rt_load32(u32 *restrict to, const u8 *restrict p, u32 n);
void rt_store32(u8 *restrict p, const u32 *restrict from, u32 n);

/* RFC 1071's checksum of a sum of 16-bit numbers with all of its carries. */
static inline u16 rt_folded16(u64 sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (u16)~sum;
}

/* Shortens a number without changing the RFC 1071 checksum of a sum with it. */
static inline u64 rt_words16(u64 number) { return (number >> 32) + (u32)number; }

/* RFC 1071's checksum of whole bytes, padded with zeros to 16 bits. */
static inline u16 rt_csum16(const u8 *p, u32 bytes)
{
    u64 sum = 0;
    for (u32 i = 0; i + 1 < bytes; i += 2)
        sum += (u32)p[i] << 8 | p[i + 1];
    if (bytes % 2)
        sum += (u32)p[bytes - 1] << 8;
    return rt_folded16(sum);
}

static inline i64 rt_clamp(i64 value, i64 low, i64 high)
{
    return value < low ? low : value > high ? high : value;
}

/* A sum that saturates at 32 bits. On overflow, its sign differs from that of both operands. */
static inline int32_t rt_saturated_sum(int32_t a, int32_t b)
{
    u32 sum = (u32)a + (u32)b, limit = (u32)(a >> 31) ^ INT32_MAX;
    return (int32_t)(((u32)a ^ sum) & ((u32)b ^ sum)) < 0 ? (int32_t)limit : (int32_t)sum;
}

static inline int32_t rt_saturated_difference(int32_t a, int32_t b)
{
    u32 difference = (u32)a - (u32)b, limit = (u32)(a >> 31) ^ INT32_MAX;
    return (int32_t)((u32)(a ^ b) & ((u32)a ^ difference)) < 0 ? (int32_t)limit
                                                               : (int32_t)difference;
}

static inline i128 rt_wide_clamp(i128 value, i128 low, i128 high)
{
    return value < low ? low : value > high ? high : value;
}

/* Returns `value` modulo 2**width, as a signed number of that width. */
static inline i128 rt_signed(i128 value, u32 width)
{
    u32 spare = 128 - width;
    return (i128)((u128)value << spare) >> spare;
}

static inline i128 rt_shift_left(i128 value, i128 by)
{
    return by > 127 ? 0 : (i128)((u128)value << by);
}

static inline i128 rt_unsigned_shift_right(i128 value, i128 by)
{
    return by > 127 ? 0 : (i128)((u128)value >> by);
}

static inline i128 rt_shift_right(i128 value, i128 by) { return value >> (by > 127 ? 127 : by); }

#include "fields.h"

#endif
