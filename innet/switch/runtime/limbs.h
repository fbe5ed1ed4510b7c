/* Integers of more than 128 bits: two's complement in LIMBS words of 64 bits, least significant first.
 * A program that needs them defines LIMBS and includes this file. */

#ifndef INNET_LIMBS_H
#define INNET_LIMBS_H

struct limbs { u64 word[LIMBS]; };

static inline struct limbs limbs_fill(i128 low, u64 above)
{
    struct limbs result = {{(u64)low, (u64)(low >> 64)}};
    for (u32 i = 2; i < LIMBS; i++)
        result.word[i] = above;
    return result;
}

static inline struct limbs limbs(i128 value) { return limbs_fill(value, value < 0 ? ~(u64)0 : 0); }

static inline struct limbs limbs_unsigned(u128 value) { return limbs_fill((i128)value, 0); }

static inline i128 limbs_low(struct limbs a) { return (i128)((u128)a.word[1] << 64 | a.word[0]); }

static inline bool limbs_negative(struct limbs a) { return a.word[LIMBS - 1] >> 63; }

/* Returns the unsigned number in a field that is an array of bytes. */
static inline struct limbs limbs_load(const u8 *p, u32 bytes)
{
    struct limbs result = {{0}};
    for (u32 i = 0; i < bytes && i < 8 * LIMBS; i++)
        result.word[i / 8] |= (u64)p[bytes - 1 - i] << 8 * (i % 8);
    return result;
}

/* Sets a field that is an array of bytes to the lowest `bits` bits. */
static inline void limbs_store(u8 *p, u32 bits, struct limbs a)
{
    u32 bytes = (bits + 7) / 8;
    for (u32 i = 0; i < bytes; i++)
        p[bytes - 1 - i] = (u8)(a.word[i / 8] >> 8 * (i % 8));
    if (bits % 8)
        p[0] &= (u8)((1u << bits % 8) - 1);
}

static inline struct limbs limbs_not(struct limbs a)
{
    for (u32 i = 0; i < LIMBS; i++)
        a.word[i] = ~a.word[i];
    return a;
}

static inline struct limbs limbs_and(struct limbs a, struct limbs b)
{
    for (u32 i = 0; i < LIMBS; i++)
        a.word[i] &= b.word[i];
    return a;
}

static inline struct limbs limbs_or(struct limbs a, struct limbs b)
{
    for (u32 i = 0; i < LIMBS; i++)
        a.word[i] |= b.word[i];
    return a;
}

static inline struct limbs limbs_xor(struct limbs a, struct limbs b)
{
    for (u32 i = 0; i < LIMBS; i++)
        a.word[i] ^= b.word[i];
    return a;
}

static inline struct limbs limbs_add(struct limbs a, struct limbs b)
{
    u128 sum = 0;
    for (u32 i = 0; i < LIMBS; i++) {
        sum = (sum >> 64) + a.word[i] + b.word[i];
        a.word[i] = (u64)sum;
    }
    return a;
}

static inline struct limbs limbs_subtract(struct limbs a, struct limbs b)
{
    return limbs_not(limbs_add(limbs_not(a), b));
}

static inline struct limbs limbs_multiply(struct limbs a, struct limbs b)
{
    struct limbs result = {{0}};
    for (u32 i = 0; i < LIMBS; i++) {
        u128 sum = 0;
        for (u32 j = 0; i + j < LIMBS; j++) {
            sum = (sum >> 64) + (u128)a.word[i] * b.word[j] + result.word[i + j];
            result.word[i + j] = (u64)sum;
        }
    }
    return result;
}

/* Returns a shift's distance, limited to the number of bits in all limbs. */
static inline i64 limbs_amount(struct limbs by)
{
    u64 above = by.word[0] >> 32;
    for (u32 i = 1; i < LIMBS; i++)
        above |= by.word[i];
    return above ? UINT32_MAX : (i64)by.word[0];
}

static inline struct limbs limbs_shift_left(struct limbs a, i128 by)
{
    struct limbs result = {{0}};
    u32 words = by < 64 * LIMBS ? (u32)by / 64 : LIMBS, bits = (u32)by % 64;
    for (u32 i = words; i < LIMBS; i++) {
        result.word[i] = a.word[i - words] << bits;
        if (bits && i > words)
            result.word[i] |= a.word[i - words - 1] >> (64 - bits);
    }
    return result;
}

static inline struct limbs limbs_shift_right(struct limbs a, i128 by)
{
    u64 sign = limbs_negative(a) ? ~(u64)0 : 0;
    u32 words = by < 64 * LIMBS ? (u32)by / 64 : LIMBS, bits = (u32)by % 64;
    for (u32 i = 0; i < LIMBS; i++) {
        u64 low = i + words < LIMBS ? a.word[i + words] : sign;
        u64 high = i + words + 1 < LIMBS ? a.word[i + words + 1] : sign;
        a.word[i] = bits ? low >> bits | high << (64 - bits) : low;
    }
    return a;
}

/* Returns `a` modulo 2**width, as a signed number of that width. */
static inline struct limbs limbs_signed(struct limbs a, u32 width)
{
    u32 spare = width < 64 * LIMBS ? 64 * LIMBS - width : 0;
    return limbs_shift_right(limbs_shift_left(a, spare), spare);
}

/* Returns a number below, at or above 0 if a is less than, equal to or greater than b. */
static inline int limbs_compare(struct limbs a, struct limbs b)
{
    if (limbs_negative(a) != limbs_negative(b))
        return limbs_negative(a) ? -1 : 1;
    for (u32 i = LIMBS; i-- > 0;)
        if (a.word[i] != b.word[i])
            return a.word[i] < b.word[i] ? -1 : 1;
    return 0;
}

static inline struct limbs limbs_clamp(struct limbs a, struct limbs low, struct limbs high)
{
    return limbs_compare(a, low) < 0 ? low : limbs_compare(a, high) > 0 ? high : a;
}

/* Returns the nearest number that `width` bits can hold. */
static inline struct limbs limbs_saturate(struct limbs a, u32 width)
{
    return limbs_clamp(a, limbs(0), limbs_not(limbs_shift_left(limbs(-1), width)));
}

static inline struct limbs limbs_saturate_signed(struct limbs a, u32 width)
{
    struct limbs low = limbs_shift_left(limbs(-1), width - 1);
    return limbs_clamp(a, low, limbs_not(low));
}

#endif
