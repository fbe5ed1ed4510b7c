/* A sum of words times weights, modulo 2^64, as in the check of packets. */

#ifndef INNET_WEIGHTED_SUM_H
#define INNET_WEIGHTED_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* A sum under way. Processors multiply several numbers of 32 bits at once, but hardly any of 64 bits. So
 * the halves of the weights have sums of their own. The upper one counts modulo 2^32. */
struct halves {
    uint64_t lower;
    uint32_t upper;
};

#ifdef __AVX2__
enum { WORDS_AT_ONCE = 8 };

static inline uint64_t added_longs(__m256i longs)
{
    uint64_t each[4];
    memcpy(each, &longs, sizeof each);
    return each[0] + each[1] + each[2] + each[3];
}

static inline uint32_t added_words(__m256i words)
{
    uint32_t each[WORDS_AT_ONCE], sum = 0;
    memcpy(each, &words, sizeof each);
    for (int k = 0; k < WORDS_AT_ONCE; k++)
        sum += each[k];
    return sum;
}

/* Adds the first `count` words, a multiple of WORDS_AT_ONCE. */
__attribute__((always_inline)) static inline struct halves
add_many(const uint8_t *words, size_t count, const uint32_t *lower, const uint32_t *upper,
         bool swapped)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    __m256i even = _mm256_setzero_si256(), odd = even, high = even;
    for (size_t k = 0; k < count; k += WORDS_AT_ONCE) {
        __m256i some = _mm256_loadu_si256((const void *)(words + sizeof *lower * k));
        __m256i low = _mm256_loadu_si256((const void *)(lower + k));
        __m256i top = _mm256_loadu_si256((const void *)(upper + k));
        if (swapped)
            some = _mm256_shuffle_epi8(some, order);
        even = _mm256_add_epi64(even, _mm256_mul_epu32(some, low));
        odd = _mm256_add_epi64(
            odd, _mm256_mul_epu32(_mm256_srli_epi64(some, 32), _mm256_srli_epi64(low, 32)));
        high = _mm256_add_epi32(high, _mm256_mullo_epi32(some, top));
    }
    return (struct halves){added_longs(even) + added_longs(odd), added_words(high)};
}
#endif

/* Returns the sum of `count` words times their weights. If they are `swapped`, the words are in network
 * byte order. `weights` are the lower halves of all weights, followed by the upper halves. */
__attribute__((always_inline)) static inline uint64_t
weighted_sum(const uint8_t *words, size_t count, const uint32_t *weights, bool swapped)
{
    const uint32_t *lower = weights, *upper = weights + count;
    struct halves sum = {0};
    size_t k = 0;
#ifdef __AVX2__
    k = count - count % WORDS_AT_ONCE;
    sum = add_many(words, k, lower, upper, swapped);
#endif
    for (; k < count; k++) {
        uint32_t word;
        memcpy(&word, words + sizeof word * k, sizeof word);
        word = swapped ? __builtin_bswap32(word) : word;
        sum.lower += (uint64_t)word * lower[k];
        sum.upper += word * upper[k];
    }
    return sum.lower + ((uint64_t)sum.upper << 32);
}

#endif
