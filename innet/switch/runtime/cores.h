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

struct handed { u32 port, bytes; };

/* The frames on their way from one core to another: a ring with one writer and one reader. */
struct handover {
    _Alignas(64) u64 head; /* frames that the reader may take */
    u64 written, seen;     /* the writer's: frames written, and the last tail seen */
    _Alignas(64) u64 tail; /* frames that the reader has taken */
    struct handed frames[HANDED_OVER];
    u8 *data;
};

/* Cores are chosen by a hash, because many programs use neighbouring indices in turn. */
static inline u32 core_of_key(const struct sw *sw, u64 key)
{
    u64 hash = key * 0x9e3779b97f4a7c15u >> 32;
    return (u32)(hash * sw->cores >> 32);
}

static inline u32 core_of_frame(struct sw *sw, u32 port, const u8 *frame, u32 bytes)
{
    if (sw->cores == 1 || !program.is_keyed)
        return sw->core;
    return core_of_key(sw, program_key(sw, port, frame, bytes));
}

void cores_destroy(struct sw *sw);
u32 cores_room(struct sw *sw);
void hand_over(struct sw *sw, u32 to, u32 port, const u8 *frame, u32 bytes);
void cores_publish(struct sw *sw);
bool cores_sleep(struct sw *sw);
void cores_awake(struct sw *sw);

/* The frames that another core has handed over: their number, one of them, and the release of their
 * places. */
u32 handed_over(struct sw *sw, u32 from);
struct handed *handed_frame(struct sw *sw, u32 from, u32 which, u8 **frame);
void cores_take(struct sw *sw, u32 from, u32 frames);

#endif
