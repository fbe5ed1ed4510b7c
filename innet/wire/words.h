/* A packet's words: 32 bits, in network byte order, wherever they lie in memory. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t word_at(const uint8_t *bytes, size_t number)
{
    uint32_t word;
    memcpy(&word, bytes + 4 * number, 4);
    return __builtin_bswap32(word);
}

static inline void put_word(uint8_t *bytes, size_t number, uint32_t word)
{
    word = __builtin_bswap32(word);
    memcpy(bytes + 4 * number, &word, 4);
}

static inline uint64_t word_sum(const uint8_t *packet, size_t words, const uint64_t *weights)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < words; k++)
        sum += weights[k] * word_at(packet, k);
    return sum;
}

static inline void store_row(uint8_t *lanes, const uint32_t *row, size_t count)
{
    for (size_t k = 0; k < count; k++)
        put_word(lanes, k, row[k]);
}

static inline void load_row(const uint8_t *lanes, uint32_t *row, size_t count)
{
    for (size_t k = 0; k < count; k++)
        row[k] = word_at(lanes, k);
}
