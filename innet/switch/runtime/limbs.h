/* Integers of more than 128 bits: two's complement in LIMBS words of 64 bits, least significant first.
 * A program that needs them defines LIMBS and includes this file. */

#ifndef INNET_LIMBS_H
#define INNET_LIMBS_H

struct limbs { uint64_t word[LIMBS]; };

static inline struct limbs limbs_fill(int128_t low, uint64_t above)
{
    struct limbs result = {{(uint64_t)low, (uint64_t)(low >> 64)}};
    for (uint32_t i = 2; i < LIMBS; i++)
        result.word[i] = above;
    return result;
}

static inline struct limbs limbs(int128_t value)
{
    return limbs_fill(value, value < 0 ? ~(uint64_t)0 : 0);
}

static inline struct limbs limbs_unsigned(uint128_t value)
{
    return limbs_fill((int128_t)value, 0);
}

static inline int128_t limbs_low(struct limbs a)
{
    return (int128_t)((uint128_t)a.word[1] << 64 | a.word[0]);
}

static inline bool limbs_negative(struct limbs a) { return a.word[LIMBS - 1] >> 63; }

/* Returns the unsigned number in a field that is an array of bytes. */
static inline struct limbs limbs_load(const uint8_t *p, uint32_t bytes)
{
    struct limbs result = {{0}};
    for (uint32_t i = 0; i < bytes && i < 8 * LIMBS; i++)
        result.word[i / 8] |= (uint64_t)p[bytes - 1 - i] << 8 * (i % 8);
    return result;
}

/* Sets a field that is an array of bytes to the lowest `bits` bits. */
static inline void limbs_store(uint8_t *p, uint32_t bits, struct limbs a)
{
    uint32_t bytes = (bits + 7) / 8;
    for (uint32_t i = 0; i < bytes; i++)
        p[bytes - 1 - i] = (uint8_t)(a.word[i / 8] >> 8 * (i % 8));
    if (bits % 8)
        p[0] &= (uint8_t)((1u << bits % 8) - 1);
}

static inline struct limbs limbs_not(struct limbs a)
{
    for (uint32_t i = 0; i < LIMBS; i++)
        a.word[i] = ~a.word[i];
    return a;
}

static inline struct limbs limbs_and(struct limbs a, struct limbs b)
{
    for (uint32_t i = 0; i < LIMBS; i++)
        a.word[i] &= b.word[i];
    return a;
}

static inline struct limbs limbs_or(struct limbs a, struct limbs b)
{
    for (uint32_t i = 0; i < LIMBS; i++)
        a.word[i] |= b.word[i];
    return a;
}

static inline struct limbs limbs_xor(struct limbs a, struct limbs b)
{
    for (uint32_t i = 0; i < LIMBS; i++)
        a.word[i] ^= b.word[i];
    return a;
}

static inline struct limbs limbs_add(struct limbs a, struct limbs b)
{
    uint128_t sum = 0;
    for (uint32_t i = 0; i < LIMBS; i++) {
        sum = (sum >> 64) + a.word[i] + b.word[i];
        a.word[i] = (uint64_t)sum;
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
    for (uint32_t i = 0; i < LIMBS; i++) {
        uint128_t sum = 0;
        for (uint32_t j = 0; i + j < LIMBS; j++) {
            sum = (sum >> 64) + (uint128_t)a.word[i] * b.word[j] + result.word[i + j];
            result.word[i + j] = (uint64_t)sum;
        }
    }
    return result;
}

/* Returns a shift's distance, or UINT32_MAX for a larger one, which shifts out all limbs as well. */
static inline int64_t limbs_amount(struct limbs by)
{
    uint64_t above = by.word[0] >> 32;
    for (uint32_t i = 1; i < LIMBS; i++)
        above |= by.word[i];
    return above ? UINT32_MAX : (int64_t)by.word[0];
}

static inline struct limbs limbs_shift_left(struct limbs a, int128_t by)
{
    struct limbs result = {{0}};
    uint32_t words = by < 64 * LIMBS ? (uint32_t)by / 64 : LIMBS, bits = (uint32_t)by % 64;
    for (uint32_t i = words; i < LIMBS; i++) {
        result.word[i] = a.word[i - words] << bits;
        if (bits && i > words)
            result.word[i] |= a.word[i - words - 1] >> (64 - bits);
    }
    return result;
}

static inline struct limbs limbs_shift_right(struct limbs a, int128_t by)
{
    uint64_t sign = limbs_negative(a) ? ~(uint64_t)0 : 0;
    uint32_t words = by < 64 * LIMBS ? (uint32_t)by / 64 : LIMBS, bits = (uint32_t)by % 64;
    for (uint32_t i = 0; i < LIMBS; i++) {
        uint64_t low = i + words < LIMBS ? a.word[i + words] : sign;
        uint64_t high = i + words + 1 < LIMBS ? a.word[i + words + 1] : sign;
        a.word[i] = bits ? low >> bits | high << (64 - bits) : low;
    }
    return a;
}

/* Returns `a` modulo 2**width, as a signed number of that width. */
static inline struct limbs limbs_signed(struct limbs a, uint32_t width)
{
    uint32_t spare = width < 64 * LIMBS ? 64 * LIMBS - width : 0;
    return limbs_shift_right(limbs_shift_left(a, spare), spare);
}

/* Returns a number below, at or above 0 if a is less than, equal to or greater than b. */
static inline int limbs_compare(struct limbs a, struct limbs b)
{
    if (limbs_negative(a) != limbs_negative(b))
        return limbs_negative(a) ? -1 : 1;
    for (uint32_t i = LIMBS; i-- > 0;)
        if (a.word[i] != b.word[i])
            return a.word[i] < b.word[i] ? -1 : 1;
    return 0;
}

static inline struct limbs limbs_clamp(struct limbs a, struct limbs low, struct limbs high)
{
    return limbs_compare(a, low) < 0 ? low : limbs_compare(a, high) > 0 ? high : a;
}

/* Returns the nearest number that `width` bits can hold. */
static inline struct limbs limbs_saturate(struct limbs a, uint32_t width)
{
    return limbs_clamp(a, limbs(0), limbs_not(limbs_shift_left(limbs(-1), width)));
}

static inline struct limbs limbs_saturate_signed(struct limbs a, uint32_t width)
{
    struct limbs low = limbs_shift_left(limbs(-1), width - 1);
    return limbs_clamp(a, low, limbs_not(low));
}

#endif
