/* Stores of rows to arrays that are too large for the processor's caches. */

#ifndef INNET_FAR_STORES_H
#define INNET_FAR_STORES_H

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "words.h"

/* The widest words that the processor stores past its caches. Parts of a cache line take longer. */
#if defined __AVX512F__
typedef __m512i widest;
#define LOAD _mm512_loadu_si512
#define STREAM _mm512_stream_si512
#elif defined __AVX__
typedef __m256i widest;
#define LOAD _mm256_loadu_si256
#define STREAM _mm256_stream_si256
#elif defined __SSE2__
typedef __m128i widest;
#define LOAD _mm_loadu_si128
#define STREAM _mm_stream_si128
#endif

enum { FAR_BYTES = 4 << 20 }; /* the arrays of a vector so large do not stay in the cache */

/* Copies words to memory that nobody reads soon, past the caches if the processor can. A plain store would
 * first read what it overwrites. */
static inline void store_far(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
    if ((uintptr_t)to % sizeof(widest) == 0 && bytes % sizeof(widest) == 0) {
        for (size_t at = 0; at < bytes; at += sizeof(widest))
            STREAM((void *)((char *)to + at), LOAD((const void *)((const char *)from + at)));
        return;
    }
#endif
    memcpy(to, from, bytes);
}

/* Makes the stores visible to all later reads, also in other threads. */
static inline void finish_far_stores(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* Copies a row of words to its place in an array of `rows` rows. */
static inline void store_words(void *to, const void *from, size_t lanes, size_t rows)
{
    size_t bytes = lanes * WORD_BYTES;
    if (rows * bytes >= FAR_BYTES)
        store_far(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

#endif
