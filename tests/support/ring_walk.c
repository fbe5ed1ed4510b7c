/* Random walks of a ring's writer and reader. The first argument is the seed, the second the number of
 * steps, and with a third the walk also damages the shared memory. Frames have to arrive whole and in
 * order while nothing is damaged. In any case the sanitizers must find nothing. */

#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

enum { LONGEST = 70000, MOST = 4096 };

static uint64_t state;

static uint64_t random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static uint8_t *frame;
static uint32_t lengths[MOST]; /* of the frames in the ring, by number */
static uint64_t written, taken;

static void fill(uint64_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        frame[i] = (uint8_t)(number * 31 + i);
}

static void check(uint64_t number, uint32_t bytes)
{
    if (bytes != lengths[number % MOST])
        abort();
    for (uint32_t i = 0; i < bytes; i++)
        if (frame[i] != (uint8_t)(number * 31 + i))
            abort();
}

static uint32_t some_length(void)
{
    return 1 + (uint32_t)random_below(random_below(8) ? 1500 : LONGEST);
}

static void step(struct ring_writer *writer, struct ring_reader *reader, int damaged)
{
    uint32_t bytes;
    if (random_below(2)) {
        bytes = some_length();
        fill(written, bytes);
        if (written - taken < MOST && ring_write(writer, frame, bytes))
            lengths[written++ % MOST] = bytes;
        ring_publish(writer);
        return;
    }
    for (uint64_t batch = random_below(64); batch && (bytes = ring_read(reader, frame, LONGEST));
         batch--)
        if (!damaged)
            check(taken++, bytes);
    ring_release(reader);
    if (!ring_sleep(reader) && !damaged && written == taken)
        abort();
}

static void damage(struct ring *ring)
{
    uint64_t rubbish = random_below(2) ? state : random_below(4 * RING_BYTES);
    switch (random_below(4)) {
    case 0:
        ring->head = rubbish;
        break;
    case 1:
        ring->tail = rubbish;
        break;
    case 2:
        ring->asleep = (uint32_t)rubbish;
        break;
    default:
        memcpy(ring->data + random_below(RING_BYTES - 8), &rubbish, sizeof rubbish);
    }
}

int main(int count, char **arguments)
{
    struct ring *ring = aligned_alloc(64, sizeof *ring);
    memset(ring, 0, sizeof *ring);
    frame = malloc(LONGEST);
    state = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    int damaged = count > 3;
    struct ring_writer writer = {.ring = ring};
    struct ring_reader reader = {.ring = ring};
    for (long steps = strtol(arguments[2], NULL, 10); steps; steps--) {
        step(&writer, &reader, damaged);
        if (damaged && !random_below(8))
            damage(ring);
    }
    printf("%llu frames\n", (unsigned long long)(damaged ? written : taken));
    free(frame);
    free(ring);
    return 0;
}
