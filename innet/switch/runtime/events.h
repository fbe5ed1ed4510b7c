/* The events of the packet loop: what a file that epoll reports is for. */

#ifndef INNET_EVENTS_H
#define INNET_EVENTS_H

#include <stdint.h>
#include <sys/epoll.h>

/* The first three are events of a port. The others have no port. */
enum event_kind {
    PORT_EVENT,    /* frames at the port's socket */
    FRAMES_EVENT,  /* frames in a cable in shared memory, or at AF_XDP sockets */
    SOCKETS_EVENT, /* new AF_XDP sockets */
    CORE_EVENT,    /* frames from another core */
    STOP_EVENT,    /* rt_stop was called */
};

static inline void watch_for(uint32_t events, int poller, int file, uint32_t port,
                             enum event_kind kind)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | port};
    epoll_ctl(poller, EPOLL_CTL_ADD, file, &event);
}

/* Makes epoll report when `file` can be read. */
static inline void watch(int poller, int file, uint32_t port, enum event_kind kind)
{
    watch_for(EPOLLIN, poller, file, port, kind);
}

/* Makes epoll report every write to an eventfd, which nobody has to read. */
static inline void watch_writes(int poller, int file, uint32_t port, enum event_kind kind)
{
    watch_for(EPOLLIN | EPOLLET, poller, file, port, kind);
}

static inline enum event_kind kind_of(const struct epoll_event *event)
{
    return (enum event_kind)(event->data.u64 >> 32);
}

static inline uint32_t port_of(const struct epoll_event *event)
{
    return (uint32_t)event->data.u64;
}

#endif
