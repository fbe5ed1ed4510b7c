/* Runs of 32-bit words in network byte order. Compilers turn loops into vector instructions if the
 * blocks have a constant size and the function's source and target cannot overlap. */

#include "runtime.h"

enum { BLOCK = 16 };

static inline void swap_words(u8 *restrict to, const u8 *restrict from, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        u32 word;
        memcpy(&word, from + 4 * i, 4);
        word = __builtin_bswap32(word);
        memcpy(to + 4 * i, &word, 4);
    }
}

static inline void swap_run(u8 *restrict to, const u8 *restrict from, u32 n)
{
    for (; n >= BLOCK; n -= BLOCK, to += 4 * BLOCK, from += 4 * BLOCK)
        swap_words(to, from, BLOCK);
    swap_words(to, from, n);
}

void rt_load32(u32 *restrict to, const u8 *restrict p, u32 n) { swap_run((u8 *)to, p, n); }

void rt_store32(u8 *restrict p, const u32 *restrict from, u32 n)
{
    swap_run(p, (const u8 *)from, n);
}
