/* The frames that the cores of a switch hand over to each other. */

#define _GNU_SOURCE
#include "cores.h"

#include <stdlib.h>
#include <unistd.h>

static struct handover *make_handover(void)
{
    struct handover *made = aligned_alloc(64, sizeof *made);
    if (!made)
        return NULL;
    memset(made, 0, sizeof *made);
    made->data = pages((size_t)HANDED_OVER * FRAME_PLACE);
    if (made->data)
        return made;
    free(made);
    return NULL;
}

/* Makes these switches the cores of one. Returns false if memory is short. */
bool rt_join(struct sw *const *all, uint32_t cores)
{
    bool enough = true;
    for (uint32_t i = 0; i < cores; i++) {
        struct sw *sw = all[i];
        sw->core = i;
        sw->cores = cores;
        for (uint32_t j = 0; j < cores; j++) {
            sw->peers[j] = all[j];
            if (i != j)
                enough &= !!(sw->to[j] = make_handover());
        }
    }
    return enough;
}

void cores_destroy(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->cores; i++)
        if (sw->to[i]) {
            free_pages(sw->to[i]->data, (size_t)HANDED_OVER * FRAME_PLACE);
            free(sw->to[i]);
        }
}

/* Returns the number of free places. If fewer than `few` are known, it first looks at what the reader
 * has taken. */
static uint32_t room_in(struct handover *to, uint32_t few)
{
    if (HANDED_OVER - (to->written - to->seen) < few)
        to->seen = __atomic_load_n(&to->tail, __ATOMIC_ACQUIRE);
    return (uint32_t)(HANDED_OVER - (to->written - to->seen));
}

/* Returns the number of frames that this core can hand over, whatever their keys are. */
uint32_t cores_room(struct sw *sw)
{
    uint32_t room = UINT32_MAX;
    for (uint32_t i = 0; program.is_keyed && i < sw->cores; i++)
        if (sw->to[i]) {
            uint32_t left = room_in(sw->to[i], HANDED_OVER / 2);
            room = left < room ? left : room;
        }
    return room;
}

void hand_over(struct sw *sw, uint32_t core, uint32_t port, const uint8_t *frame, uint32_t bytes)
{
    struct handover *to = sw->to[core];
    if (!room_in(to, 1)) { /* cores_room prevents this */
        rt_dropped(sw, DROP_QUEUE_FULL);
        return;
    }
    uint32_t at = to->written++ % HANDED_OVER;
    to->frames[at] = (struct handed){port, bytes, sw->arrived.start, sw->arrived.at};
    memcpy(to->data + (size_t)at * FRAME_PLACE, frame, bytes);
}

/* Shows the other cores what has been handed over to them, and wakes those that sleep. */
void cores_publish(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->cores; i++) {
        struct handover *to = sw->to[i];
        if (to && to->written != to->head) {
            __atomic_store_n(&to->head, to->written, __ATOMIC_RELEASE);
            ring_wake(&sw->peers[i]->asleep, sw->peers[i]->bell);
        }
    }
}

uint32_t handed_over(struct sw *sw, uint32_t from)
{
    struct handover *in = sw->peers[from]->to[sw->core];
    return in ? (uint32_t)(__atomic_load_n(&in->head, __ATOMIC_ACQUIRE) - in->tail) : 0;
}

struct handed *handed_frame(struct sw *sw, uint32_t from, uint32_t which, uint8_t **frame)
{
    struct handover *in = sw->peers[from]->to[sw->core];
    uint32_t at = (in->tail + which) % HANDED_OVER;
    *frame = in->data + (size_t)at * FRAME_PLACE;
    return &in->frames[at];
}

void cores_take(struct sw *sw, uint32_t from, uint32_t frames)
{
    struct handover *in = sw->peers[from]->to[sw->core];
    __atomic_store_n(&in->tail, in->tail + frames, __ATOMIC_RELEASE);
}

/* Asks the other cores for a wake-up. Returns false if they have handed over frames already. */
bool cores_sleep(struct sw *sw)
{
    __atomic_store_n(&sw->asleep, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < sw->cores; i++)
        if (handed_over(sw, i))
            return false;
    return true;
}

void cores_awake(struct sw *sw)
{
    uint64_t wakeups;
    ssize_t taken = read(sw->bell, &wakeups, sizeof wakeups);
    (void)taken;
}

/* Returns the core that processes a frame. */
uint32_t rt_core(struct sw *sw, uint32_t port, const uint8_t *frame, uint32_t bytes)
{
    rt_hold(sw); /* the packet loop is between two frames */
    uint32_t core = core_of_frame(sw, port, frame, bytes);
    rt_release(sw);
    return core;
}
