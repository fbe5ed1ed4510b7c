/* What the generated program and the runtime share. The program (program.c, generated) knows the P4;
 * the runtime knows tables, ports and packets. One `sw` is one running switch. */

#ifndef INNET_RUNTIME_H
#define INNET_RUNTIME_H

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

enum { RT_MAX_FRAME = 65536, RT_MAX_PORTS = 1024 };

struct count { u64 packets, bytes; };

/* Why the switch drops a packet on purpose. */
enum drop { DROP_INGRESS, DROP_EGRESS, DROP_NO_GROUP, DROP_NO_PORT, DROP_TOO_LONG, DROP_QUEUE_FULL,
            DROP_PRIORITY, DROPS };

/* A table entry, or a default action. `args` holds two words for every parameter (low, high). */
struct entry {
    u64 *args;
    struct count hits;
    u64 last_hit; /* ns, of the switch's clock */
    u32 action;
    u32 priority;
    u32 id;
    u32 hash;
    u8 *key, *mask; /* the key is masked */
    u8 *low, *high; /* bounds, where the table's spans are; within, as key, but neither masked */
    const struct bundle *bundle; /* in a table with a profile: the actions to choose of */
    struct meter *meter;         /* NULL as long as it is not configured */
    struct entry *next;
};

/* What an entry with this bundle may do: in a table with a profile. `args` are as an entry's. */
struct call { u32 action; u64 *args; };
struct bundle { u32 count; struct call *calls; };

/* All entries of one mask, hashed. A table is a list of these, the most specific first. */
struct group {
    u8 *mask; /* of no bits where there are bounds */
    u32 top_priority, used, buckets;
    struct entry **bucket;
};

struct table {
    u32 key_bytes;
    struct group *groups;
    u32 group_count;
    struct entry **by_id;
    u32 ids;
    struct entry miss;
    u64 hits, misses;
};

struct sw;

#include "externs.h"
#include "replication.h"

/* Where the cells of a register lie in the program's state. */
struct cells { size_t first, stride; u32 bytes, count; };

/* The generated program's description of itself. */
struct program {
    u32 tables;
    const u32 *key_bytes;     /* of each table */
    const u32 *default_action;
    u32 counters;
    const u32 *counter_size;
    const struct cells *registers;
    size_t state_bytes;       /* registers and whatever else the program keeps */
    size_t phv_bytes;         /* of a packet that waits for another pass; 0 if none ever does */
    u32 learn_lists;          /* how many kinds of digests there are */
};
extern const struct program program;

/* One packet through the program: parse, ingress, copies, egress, deparse. */
void program_process(struct sw *sw, void *state, u32 port, const u8 *frame, u32 length);

/* One more pass of a packet: from the parser on, or, of a clone, from the egress on. */
void program_again(struct sw *sw, void *state, struct pending *packet);
void program_clone(struct sw *sw, void *state, struct pending *packet);

/* For the program. */
struct entry *rt_lookup(struct sw *sw, u32 table, const u8 *key);
struct entry *rt_miss(struct sw *sw, u32 table);
void rt_count(struct sw *sw, u32 counter, u64 index, u32 length);
void rt_emit(struct sw *sw, u32 port, const u8 *head, u32 head_bytes, const u8 *rest, u32 rest_bytes);
void rt_dropped(struct sw *sw, enum drop why);
u64 rt_now_us(const struct sw *sw);
const u32 *rt_drop_port(const struct sw *sw);
u32 rt_priority_queues(const struct sw *sw);
__attribute__((format(printf, 4, 5)))
void rt_trace(struct sw *sw, const struct path *path, char level, const char *message, ...);
const char *rt_hex(char *text, const void *value, u32 bytes, u32 bits);
void capture_frame(int file, const u8 *frame, u32 bytes);
u64 rt_frame_number(struct sw *sw);
u32 rt_copy_number(struct sw *sw);
void rt_hold(struct sw *sw);
void rt_release(struct sw *sw);

/* An action's parameter that is wider than 64 bits: two words, the low one first. */
static inline u128 rt_wide_arg(const u64 *args, u32 index)
{
    return (u128)args[2 * index + 1] << 64 | args[2 * index];
}

/* `width` bits (at most 64) that start `offset` bits into `p`, most significant first. */
static inline u64 rt_bits(const u8 *p, u32 offset, u32 width)
{
    u128 value = 0;
    u32 first = offset / 8, last = (offset + width + 7) / 8;
    for (u32 i = first; i < last; i++)
        value = value << 8 | p[i];
    value >>= last * 8 - (offset + width);
    return width == 64 ? (u64)value : (u64)value & (((u64)1 << width) - 1);
}

static inline u128 rt_wide_bits(const u8 *p, u32 offset, u32 width)
{
    u32 high = width > 64 ? width - 64 : 0;
    u128 value = high ? rt_bits(p, offset, high) : 0;
    return value << (width - high) | rt_bits(p, offset + high, width - high);
}

static inline void rt_put_bits(u8 *p, u32 offset, u32 width, u128 value)
{
    for (u32 done = 0; done < width;) {
        u32 at = offset + width - 1 - done, shift = 7 - at % 8;
        u32 take = width - done < 8 - shift ? width - done : 8 - shift;
        u8 mask = (u8)(((1u << take) - 1) << shift);
        p[at / 8] = (u8)((p[at / 8] & ~mask) | ((u8)(value << shift) & mask));
        value >>= take;
        done += take;
    }
}

/* Runs of neighbouring 32-bit fields, the bulk of a wide header. */
static inline void rt_load32(u32 *restrict to, const u8 *restrict p, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        u32 word;
        memcpy(&word, p + 4 * i, 4);
        to[i] = __builtin_bswap32(word);
    }
}

static inline void rt_store32(u8 *restrict p, const u32 *restrict from, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        u32 word = __builtin_bswap32(from[i]);
        memcpy(p + 4 * i, &word, 4);
    }
}

/* RFC 1071's checksum of whole bytes, zero-padded to 16 bits. */
static inline u16 rt_csum16(const u8 *p, u32 bytes)
{
    u64 sum = 0;
    for (u32 i = 0; i + 1 < bytes; i += 2)
        sum += (u32)p[i] << 8 | p[i + 1];
    if (bytes % 2)
        sum += (u32)p[bytes - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (u16)~sum;
}

static inline i64 rt_clamp(i64 value, i64 low, i64 high)
{
    return value < low ? low : value > high ? high : value;
}

static inline i128 rt_wide_clamp(i128 value, i128 low, i128 high)
{
    return value < low ? low : value > high ? high : value;
}

/* `value` modulo 2**width, as a signed number of that width. */
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

static inline i128 rt_shift_right(i128 value, i128 by)
{
    return value >> (by > 127 ? 127 : by);
}

#include "fields.h"

#endif
