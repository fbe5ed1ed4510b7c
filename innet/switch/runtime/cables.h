/* The switch's ends of cables in shared memory, for the packet loop. */

#ifndef INNET_CABLES_H
#define INNET_CABLES_H

#include "switch.h"

#include <sys/epoll.h>

/* The reason for which a file wakes the packet loop: a port, a cable or AF_XDP sockets of a port, or
 * another core. */
enum event_kind { PORT_EVENT, PEER_EVENT, FRAMES_EVENT, SOCKETS_EVENT, CORE_EVENT };

static inline uint64_t event_of(uint32_t number, enum event_kind kind)
{
    return (uint64_t)kind << 32 | number;
}

static inline void watch(int poller, int file, uint32_t number, enum event_kind kind)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_of(number, kind)};
    epoll_ctl(poller, EPOLL_CTL_ADD, file, &event);
}

void cable_accept(struct sw *sw, uint32_t number);
void cable_close(struct sw *sw, uint32_t number);
bool cable_is_closed(const struct port *port);
void cable_drain(const struct port *port);

#endif
