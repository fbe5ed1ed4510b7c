/* The parts of a switch that the rest of the runtime needs: its lock, its clock, its numbers.
 *
 * One thread processes packets. It holds the lock for a round of them, or until another thread wants
 * it. Control-plane calls take the same lock. A lookup therefore never sees half a change, and a
 * change never loses a packet. */

#include "switch.h"

#include <sched.h>

void switch_create(struct sw *sw)
{
    pthread_mutexattr_t recursive; /* for rt_hold */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&sw->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    clock_gettime(CLOCK_MONOTONIC, &sw->started);
}

void switch_destroy(struct sw *sw) { pthread_mutex_destroy(&sw->lock); }

uint64_t now_ns(const struct sw *sw)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - sw->started.tv_sec) * 1000000000 + now.tv_nsec
                      - sw->started.tv_nsec);
}

uint64_t rt_now_us(const struct sw *sw) { return now_ns(sw) / 1000; }

/* Between rt_hold and rt_release no packet is processed, so that packets see all changes made there as
 * one change. A mutex goes to the first thread that asks, which under load is the packet loop. The
 * loop therefore checks whether another thread waits. */
void rt_hold(struct sw *sw)
{
    __atomic_add_fetch(&sw->waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&sw->lock);
    __atomic_sub_fetch(&sw->waiting, 1, __ATOMIC_RELAXED);
}

void rt_release(struct sw *sw) { pthread_mutex_unlock(&sw->lock); }

bool lock_wanted(const struct sw *sw) { return __atomic_load_n(&sw->waiting, __ATOMIC_RELAXED); }

void packet_lock(struct sw *sw)
{
    while (lock_wanted(sw))
        sched_yield();
    pthread_mutex_lock(&sw->lock);
}

void rt_set_priority_queues(struct sw *sw, uint32_t queues) { sw->priority_queues = queues; }

/* Frames are counted from 0, and the copies of each from 1. Only a program that traces asks. */
uint64_t rt_frame_number(struct sw *sw)
{
    sw->copy_number = 0;
    return sw->frame_number++;
}

uint32_t rt_copy_number(struct sw *sw) { return ++sw->copy_number; }

/* Adds this core's counts. */
void rt_drops(struct sw *sw, uint64_t *counts, uint32_t reasons)
{
    rt_hold(sw);
    for (uint32_t i = 0; i < reasons && i < DROPS; i++)
        counts[i] += sw->dropped[i];
    rt_release(sw);
}
