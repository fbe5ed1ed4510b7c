/* A worker's operations on every word of every packet: the check, and the order of bytes.
 *
 * innet/wire/batch.py calls these functions for whole batches of packets, and describes each of them. */

#include "words.h"

void innet_word_sums(const uint8_t *packets, size_t stride, size_t count, size_t words,
                     const uint64_t *weights, uint64_t *sums)
{
    for (size_t packet = 0; packet < count; packet++, packets += stride)
        sums[packet] = word_sum(packets, words, weights);
}

void innet_store_lanes(uint8_t *packets, size_t stride, size_t count, size_t lanes,
                       const uint32_t *chunks, const int64_t *which)
{
    for (size_t packet = 0; packet < count; packet++, packets += stride)
        store_row(packets, chunks + (size_t)which[packet] * lanes, lanes);
}

void innet_load_lanes(const uint8_t *packets, size_t stride, size_t count, size_t lanes,
                      const int64_t *positions, uint32_t *chunks, const int64_t *which)
{
    for (size_t number = 0; number < count; number++) {
        const uint8_t *packet = packets + (size_t)positions[number] * stride;
        load_row(packet, chunks + (size_t)which[number] * lanes, lanes);
    }
}
