/* Sums of the arrays that the workers of a node have in shared memory.
 *
 * innet/host/node_tables.py calls it. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 1024 }; /* integers: the sums of a block stay in the processor's nearest cache */

/* Adds up arrays of `count` integers, which begin `stride` integers apart. A sum wraps around, as it does in
 * a switch. */
void innet_add(const uint32_t *arrays, size_t number, size_t stride, size_t count, uint32_t *sums)
{
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t size = count - at < BLOCK ? count - at : BLOCK;
        memcpy(sums + at, arrays + at, size * sizeof *sums);
        for (size_t i = 1; i < number; i++) {
            const uint32_t *array = arrays + i * stride + at;
            for (size_t k = 0; k < size; k++)
                sums[at + k] += array[k];
        }
    }
}
