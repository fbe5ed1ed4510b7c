/* Multicast groups, clone sessions, the queues of packets that wait for another pass, and digests. */

#define _GNU_SOURCE
#include "switch.h"

#include <stdlib.h>
#include <unistd.h>

/* BMv2's queue of resubmitted packets has QUEUED places. The packet that is being processed takes one
 * more. */
enum { QUEUED = 1024, SLOTS = QUEUED + 1 };
enum { ALIGNMENT = 64, LEARNED_ROOM = 1 << 20 };

/* ---- creation ---------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The pages of the arena take memory only once packets have used them. */
static bool create_queues(struct replication *r)
{
    size_t phv_bytes = aligned(program.phv_bytes), slot_bytes = phv_bytes + RT_MAX_FRAME;
    r->arena_bytes = RT_QUEUES * SLOTS * slot_bytes;
    r->arena = pages(r->arena_bytes);
    if (!r->arena)
        return false;
    uint8_t *at = r->arena;
    for (uint32_t q = 0; q < RT_QUEUES; q++) {
        r->queues[q].slots = needed(zeroed(SLOTS, sizeof(struct pending)));
        for (uint32_t i = 0; i < SLOTS; i++, at += slot_bytes)
            r->queues[q].slots[i] = (struct pending){.phv = at, .data = at + phv_bytes};
    }
    return true;
}

bool replication_create(struct replication *r)
{
    r->groups = needed(zeroed(RT_MAX_GROUPS, sizeof *r->groups));
    r->sessions = needed(zeroed(RT_MAX_SESSIONS, sizeof *r->sessions));
    r->learned = needed(zeroed(1, LEARNED_ROOM));
    r->learning = needed(zeroed(program.learn_lists, sizeof *r->learning));
    r->learned_eventfd = -1;
    return !program.phv_bytes || create_queues(r);
}

void replication_destroy(struct replication *r)
{
    for (uint32_t i = 0; i < RT_MAX_GROUPS; i++)
        free(r->groups[i]);
    for (uint32_t i = 0; i < RT_MAX_SESSIONS; i++)
        free(r->sessions[i]);
    for (uint32_t q = 0; q < RT_QUEUES; q++)
        free(r->queues[q].slots);
    free_pages(r->arena, r->arena_bytes);
    free(r->groups);
    free(r->sessions);
    free(r->learned);
    free(r->learning);
}

/* ---- copies ------------------------------------------------------------------------------------ */

static struct copies *make_copies(const struct replica *replicas, uint32_t count)
{
    if (!count)
        return NULL;
    struct copies *copies = needed(zeroed(1, sizeof *copies + (size_t)count * sizeof *replicas));
    copies->count = count;
    memcpy(copies->replicas, replicas, count * sizeof *replicas);
    return copies;
}

/* Sets the replicas of a group. A count of 0 deletes it. The number is below RT_MAX_GROUPS. */
void rt_set_group(struct sw *sw, uint32_t group, const struct replica *replicas, uint32_t count)
{
    struct copies *copies = make_copies(replicas, count);
    rt_hold(sw);
    struct copies **place = &sw->replication.groups[group], *old = *place;
    *place = copies;
    rt_release(sw);
    free(old);
}

/* Sets the replicas of a session. A count of 0 deletes it. The number is below RT_MAX_SESSIONS. */
void rt_set_session(struct sw *sw, uint32_t session, const struct replica *replicas, uint32_t count,
                    uint32_t max_bytes, uint32_t class_of_service)
{
    struct copies *copies = make_copies(replicas, count);
    if (copies) {
        copies->max_bytes = max_bytes;
        copies->class_of_service = class_of_service;
    }
    rt_hold(sw);
    struct copies **place = &sw->replication.sessions[session], *old = *place;
    *place = copies;
    rt_release(sw);
    free(old);
}

/* ---- queues ------------------------------------------------------------------------------------ */

struct pending *rt_push(struct sw *sw, enum rt_queue which, uint32_t bytes)
{
    struct queue *queue = &sw->replication.queues[which];
    if (queue->count == SLOTS || bytes > RT_MAX_FRAME)
        return NULL;
    struct pending *slot = &queue->slots[(queue->first + queue->count++) % SLOTS];
    slot->bytes = bytes;
    return slot;
}

struct pending *replication_next(struct replication *r, enum rt_queue which)
{
    struct queue *queue = &r->queues[which];
    return queue->count ? &queue->slots[queue->first] : NULL;
}

void replication_finish(struct replication *r, enum rt_queue which)
{
    struct queue *queue = &r->queues[which];
    queue->first = (queue->first + 1) % SLOTS;
    queue->count--;
}

/* ---- digests ----------------------------------------------------------------------------------- */

/* A sample in the ring: the number of its list, its size, its bytes. */
struct sample_head { uint16_t list, bytes; };

static void digest_write(struct replication *r, const void *data, uint32_t bytes)
{
    uint32_t at = (r->learned_first + r->learned_bytes) % LEARNED_ROOM;
    uint32_t before_end = bytes < LEARNED_ROOM - at ? bytes : LEARNED_ROOM - at;
    memcpy(r->learned + at, data, before_end);
    memcpy(r->learned, (const uint8_t *)data + before_end, bytes - before_end);
    r->learned_bytes += bytes;
}

static void digest_peek(const struct replication *r, uint32_t offset, void *data, uint32_t bytes)
{
    uint32_t at = (r->learned_first + offset) % LEARNED_ROOM;
    uint32_t before_end = bytes < LEARNED_ROOM - at ? bytes : LEARNED_ROOM - at;
    memcpy(data, r->learned + at, before_end);
    memcpy((uint8_t *)data + before_end, r->learned, bytes - before_end);
}

void rt_learn(struct sw *sw, uint32_t list, const uint8_t *sample, uint32_t bytes)
{
    struct replication *r = &sw->replication;
    struct sample_head head = {(uint16_t)list, (uint16_t)bytes};
    if (!r->learning[list])
        return;
    if (r->learned_bytes + sizeof head + bytes > LEARNED_ROOM) {
        r->learned_lost++;
        return;
    }
    digest_write(r, &head, sizeof head);
    digest_write(r, sample, bytes);
    r->wake_reader = true;
}

void replication_flush(struct replication *r)
{
    if (!r->wake_reader)
        return;
    uint64_t one = 1;
    ssize_t written = r->learned_eventfd < 0 ? 0 : write(r->learned_eventfd, &one, sizeof one);
    (void)written;
    r->wake_reader = false;
}

void rt_set_learning(struct sw *sw, uint32_t list, bool on)
{
    rt_hold(sw);
    sw->replication.learning[list] = on;
    rt_release(sw);
}

/* Sets the eventfd that becomes readable when there are samples. It belongs to the caller. */
void rt_set_wakeup(struct sw *sw, int fd)
{
    rt_hold(sw);
    sw->replication.learned_eventfd = fd;
    rt_release(sw);
}

/* Moves whole samples to `to`, each behind its head. Returns the bytes moved. */
uint32_t rt_learned(struct sw *sw, uint8_t *to, uint32_t room)
{
    uint32_t moved = 0;
    rt_hold(sw);
    struct replication *r = &sw->replication;
    while (r->learned_bytes) {
        struct sample_head head;
        digest_peek(r, 0, &head, sizeof head);
        uint32_t bytes = (uint32_t)sizeof head + head.bytes;
        if (moved + bytes > room)
            break;
        digest_peek(r, 0, to + moved, bytes);
        r->learned_first = (r->learned_first + bytes) % LEARNED_ROOM;
        r->learned_bytes -= bytes;
        moved += bytes;
    }
    rt_release(sw);
    return moved;
}
