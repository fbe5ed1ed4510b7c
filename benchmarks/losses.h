/* Random losses of packets, the same in every run with one seed. */

#ifndef INNET_LOSSES_H
#define INNET_LOSSES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct losses {
    double share;
    uint64_t state; /* of xorshift64*, never 0 */
    int64_t until;  /* packets that pass before the next loss */
    int64_t lost;
};

/* Returns a random number from 0 on, below 1. */
static inline double draw(struct losses *losses)
{
    losses->state ^= losses->state >> 12;
    losses->state ^= losses->state << 25;
    losses->state ^= losses->state >> 27;
    return (double)(losses->state * 0x2545f4914f6cdd1dull >> 11) * 0x1p-53;
}

/* Returns the number of packets before the next loss, which has a geometric distribution. */
static inline int64_t draw_gap(struct losses *losses)
{
    if (losses->share <= 0)
        return INT64_MAX;
    return (int64_t)(log1p(-draw(losses)) / log1p(-losses->share));
}

static inline int is_lost(struct losses *losses)
{
    if (losses->until-- > 0)
        return 0;
    losses->until = draw_gap(losses);
    losses->lost++;
    return 1;
}

/* Leaves the packets that are not lost at the beginning. Returns their number. */
static inline int64_t keep_rest(struct losses *losses, uint8_t *packets, int64_t count,
                                size_t bytes)
{
    uint8_t *end = packets;
    for (int64_t i = 0; i < count; i++, packets += bytes) {
        if (is_lost(losses))
            continue;
        if (end != packets)
            memmove(end, packets, bytes);
        end += bytes;
    }
    return count - (packets - end) / (int64_t)bytes;
}

#endif
