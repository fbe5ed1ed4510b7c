/* The switch's ends of cables in shared memory; wire/ring.h describes these. The packet loop only uses them.
 * A thread for each port, in engine/cables.py, makes and removes them, because a worker can make it wait. */

#define _GNU_SOURCE
#include "cables.h"
#include "events.h"

#include <sys/socket.h>

_Static_assert(RT_MAX_CORES <= CABLE_CORES, "as in innet/switch/constants.py");

/* Returns the bytes of memory of a cable to so many cores. */
uint64_t rt_cable_bytes(uint32_t cores) { return cores * sizeof(struct cable); }

/* Sets this core's end of a port's cable, or removes it if there is no `memory`. The memory, the connection
 * to the worker and the eventfds of all cores belong to the caller. */
void rt_set_cable(struct sw *sw, uint32_t number, struct cable *memory, int peer,
                  const int *wakeups)
{
    rt_hold(sw);
    struct shared_cable *cable = &sw->ports[number].cable;
    if (cable->memory) /* closing alone would not end the watch: the worker has the eventfd, too */
        epoll_ctl(sw->poller, EPOLL_CTL_DEL, cable->wakeup, NULL);
    *cable = (struct shared_cable){0};
    if (memory) {
        struct cable *own = &memory[sw->core];
        *cable = (struct shared_cable){.memory = own,
                                       .peer = peer,
                                       .wakeup = wakeups[sw->core],
                                       .in = {.ring = &own->up},
                                       .out = {.ring = &own->down}};
        watch_writes(sw->poller, cable->wakeup, number, FRAMES_EVENT);
    }
    rt_release(sw);
}

/* If the connection has no room for the message, others are there, which the worker has yet to read. */
void cable_wake(const struct shared_cable *cable)
{
    ssize_t sent = send(cable->peer, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent;
}
