/* A switch on several cores. Each core is a switch of its own, with its own thread, tables, counts and
 * registers. Cores share the ports. One core receives the frames of a port. It hands a frame over to
 * the core that owns the frame's key, and that core processes and sends it.
 *
 * So the cells of an index are used by one core only, and no packet waits for another core's lock. */

#ifndef INNET_CORES_H
#define INNET_CORES_H

#include "switch.h"

enum { HANDED_OVER = 512 }; /* the most frames on their way from one core to another */
_Static_assert(HANDED_OVER >= MOST_SEGMENTS, "a message of a port fits");

struct handed { uint32_t port, bytes, start, at; }; /* with the frame's partial checksum */

/* The frames on their way from one core to another: a ring with one writer and one reader. */
struct handover {
    _Alignas(64) uint64_t head; /* frames that the reader may take */
    uint64_t written, seen;     /* the writer's: frames written, and the last tail seen */
    _Alignas(64) uint64_t tail; /* frames that the reader has taken */
    struct handed frames[HANDED_OVER];
    uint8_t *data;
};

/* Cores are chosen by a hash, because many programs use neighbouring indices in turn. */
static inline uint32_t core_of_key(const struct sw *sw, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15u >> 32;
    return (uint32_t)(hash * sw->cores >> 32);
}

static inline uint32_t core_of_frame(struct sw *sw, uint32_t port, const uint8_t *frame,
                                     uint32_t bytes)
{
    if (sw->cores == 1 || !program.is_keyed)
        return sw->core;
    return core_of_key(sw, program_key(sw, port, frame, bytes));
}

void cores_destroy(struct sw *sw);
uint32_t cores_room(struct sw *sw);
void hand_over(struct sw *sw, uint32_t to, uint32_t port, const uint8_t *frame, uint32_t bytes);
void cores_publish(struct sw *sw);
bool cores_sleep(struct sw *sw);
void cores_awake(struct sw *sw);

/* The frames that another core has handed over: their number, one of them, and the release of their
 * places. */
uint32_t handed_over(struct sw *sw, uint32_t from);
struct handed *handed_frame(struct sw *sw, uint32_t from, uint32_t which, uint8_t **frame);
void cores_take(struct sw *sw, uint32_t from, uint32_t frames);

#endif
