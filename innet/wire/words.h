/* A packet's numbers: words of 32 bits and halves of 16, in network byte order. They need not be
 * aligned. */

#ifndef INNET_WORDS_H
#define INNET_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "weighted_sum.h"

enum { WORD_BYTES = sizeof(uint32_t) };

static inline uint16_t half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return __builtin_bswap16(half);
}

static inline void put_half(uint8_t *at, uint16_t half)
{
    half = __builtin_bswap16(half);
    memcpy(at, &half, sizeof half);
}

static inline uint32_t word_at(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap32(word);
}

static inline void put_word(uint8_t *at, uint32_t word)
{
    word = __builtin_bswap32(word);
    memcpy(at, &word, sizeof word);
}

/* The two fields of a byte. */
static inline uint8_t upper_nibble(const uint8_t *at) { return *at >> 4; }

static inline uint8_t lower_nibble(const uint8_t *at) { return *at & 15; }

static inline uint64_t word_pair_at(const uint8_t *at)
{
    uint64_t pair;
    memcpy(&pair, at, sizeof pair);
    return __builtin_bswap64(pair);
}

/* Returns the sum of a packet's words times their weights; see weighted_sum. */
static inline uint64_t word_sum(const uint8_t *packet, size_t words, const uint64_t *weights)
{
    return weighted_sum(packet, words, weights, true);
}

static inline void store_row(uint8_t *lanes, const uint32_t *row, size_t count)
{
    for (size_t k = 0; k < count; k++)
        put_word(lanes + WORD_BYTES * k, row[k]);
}

static inline void load_row(const uint8_t *lanes, uint32_t *row, size_t count)
{
    for (size_t k = 0; k < count; k++)
        row[k] = word_at(lanes + WORD_BYTES * k);
}

#endif
