/* Runs of 32-bit words: of a packet, in network byte order, and of a wide header.
 *
 * Compilers turn loops into vector instructions if the blocks have a constant size and the function's
 * source and target cannot overlap. */

#include "runtime.h"
#include "weighted_sum.h"

enum { BLOCK = 16 };

static inline void swap_words(uint8_t *restrict to, const uint8_t *restrict from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, from + 4 * i, 4);
        word = __builtin_bswap32(word);
        memcpy(to + 4 * i, &word, 4);
    }
}

static inline void swap_run(uint8_t *restrict to, const uint8_t *restrict from, uint32_t n)
{
    for (; n >= BLOCK; n -= BLOCK, to += 4 * BLOCK, from += 4 * BLOCK)
        swap_words(to, from, BLOCK);
    swap_words(to, from, n);
}

void rt_load32(uint32_t *restrict to, const uint8_t *restrict p, uint32_t n)
{
    swap_run((uint8_t *)to, p, n);
}

uint64_t rt_weighted_sum(const uint32_t *words, uint32_t n, const uint64_t *weights)
{
    return weighted_sum((const uint8_t *)words, n, weights, false);
}

void rt_store32(uint8_t *restrict p, const uint32_t *restrict from, uint32_t n)
{
    swap_run(p, (const uint8_t *)from, n);
}
