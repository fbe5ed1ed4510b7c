/* A sum of words times weights, modulo 2^64, as in the check of packets. */

#ifndef INNET_WEIGHTED_SUM_H
#define INNET_WEIGHTED_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>

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

/* Returns the sum of the first `count` words, a multiple of WORDS_AT_ONCE, times their weights.
 *
 * AVX2 multiplies eight numbers of 32 bits at once, but none of 64 bits. So the halves of the weights have
 * sums of their own. Only the lower 32 bits of the products with upper halves count. */
__attribute__((always_inline)) static inline uint64_t
sum_of_many(const uint8_t *words, size_t count, const uint64_t *weights, bool swapped)
{
    const __m256i swap = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    __m256i even = _mm256_setzero_si256(), odd = even, high = even;
    for (size_t k = 0; k < count; k += WORDS_AT_ONCE) {
        __m256i some = _mm256_loadu_si256((const void *)(words + sizeof(uint32_t) * k));
        __m256 first = _mm256_loadu_ps((const void *)(weights + k));
        __m256 second = _mm256_loadu_ps((const void *)(weights + k + WORDS_AT_ONCE / 2));
        if (swapped)
            some = _mm256_shuffle_epi8(some, swap);
        /* The halves of weights come in the order 0 1 4 5 2 3 6 7, so the words have to, as well. */
        __m256i lower = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88));
        __m256i upper = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
        some = _mm256_permute4x64_epi64(some, 0xd8);
        even = _mm256_add_epi64(even, _mm256_mul_epu32(some, lower));
        odd = _mm256_add_epi64(
            odd, _mm256_mul_epu32(_mm256_srli_epi64(some, 32), _mm256_srli_epi64(lower, 32)));
        high = _mm256_add_epi32(high, _mm256_mullo_epi32(some, upper));
    }
    return added_longs(even) + added_longs(odd) + ((uint64_t)added_words(high) << 32);
}
#endif

#ifdef __AVX512DQ__
/* Does the same for a multiple of twice WORDS_AT_ONCE. The halves of 16 weights come in order. */
__attribute__((always_inline)) static inline uint64_t
sum_of_most(const uint8_t *words, size_t count, const uint64_t *weights, bool swapped)
{
    const __m512i swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    const __m512i lower_halves =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i upper_halves = _mm512_add_epi32(lower_halves, _mm512_set1_epi32(1));
    __m512i even = _mm512_setzero_si512(), odd = even, high = even;
    for (size_t k = 0; k < count; k += 2 * WORDS_AT_ONCE) {
        __m512i some = _mm512_loadu_si512(words + sizeof(uint32_t) * k);
        __m512i first = _mm512_loadu_si512(weights + k);
        __m512i second = _mm512_loadu_si512(weights + k + WORDS_AT_ONCE);
        if (swapped)
            some = _mm512_shuffle_epi8(some, swap);
        __m512i lower = _mm512_permutex2var_epi32(first, lower_halves, second);
        __m512i upper = _mm512_permutex2var_epi32(first, upper_halves, second);
        even = _mm512_add_epi64(even, _mm512_mul_epu32(some, lower));
        odd = _mm512_add_epi64(
            odd, _mm512_mul_epu32(_mm512_srli_epi64(some, 32), _mm512_srli_epi64(lower, 32)));
        high = _mm512_add_epi32(high, _mm512_mullo_epi32(some, upper));
    }
    /* The compiler's own sums of lanes are of signed numbers, which must not overflow. */
    __m512i longs = _mm512_add_epi64(even, odd);
    return added_longs(_mm512_castsi512_si256(longs))
           + added_longs(_mm512_extracti64x4_epi64(longs, 1))
           + ((uint64_t)(added_words(_mm512_castsi512_si256(high))
                         + added_words(_mm512_extracti64x4_epi64(high, 1)))
              << 32);
}
#endif

/* Returns the sum of `count` words times their weights. If they are `swapped`, the words are in network
 * byte order. */
__attribute__((always_inline)) static inline uint64_t
weighted_sum(const uint8_t *words, size_t count, const uint64_t *weights, bool swapped)
{
    uint64_t sum = 0;
    size_t k = 0;
#ifdef __AVX512DQ__
    k = count - count % (2 * WORDS_AT_ONCE);
    sum = sum_of_most(words, k, weights, swapped);
#elif defined __AVX2__
    k = count - count % WORDS_AT_ONCE;
    sum = sum_of_many(words, k, weights, swapped);
#endif
    for (; k < count; k++) {
        uint32_t word;
        memcpy(&word, words + sizeof word * k, sizeof word);
        sum += weights[k] * (swapped ? __builtin_bswap32(word) : word);
    }
    return sum;
}

#endif
