/* The state of one core of the server: a thread with an epoll loop, a listening socket, and jobs of its
 * own. Other threads send it orders. It reports events through a pipe.
 *
 * The files call each other in this order: core.c (the event loop), frames.c, reports.c, job.c,
 * optimizers.c. */

#ifndef INNET_PBOX_STATE_H
#define INNET_PBOX_STATE_H

#include "job.h"
#include "stream.h"

enum { MOST_CONNECTIONS = 4096, HELLO_WITHIN_S = 10 };

/* An event about a job, or about worker `rank` of a job. `kind` is an enum core_event. If the
 * worker has broken a rule, `rule` is the enum violation. */
struct event {
    uint64_t job;
    uint32_t kind, rank, rule, zero;
};

struct connection {
    int socket;
    uint32_t slot;   /* its index in the core's list */
    struct job *job; /* NULL before the HELLO */
    uint32_t rank;
    uint8_t key[KEY_BYTES];
    struct inlet in;
    struct reply *replies;      /* a ring buffer with `room` places */
    uint32_t first, owed, room; /* `owed` replies are due, from `first` on */
    uint32_t sent;              /* bytes of the first due reply that are out */
    bool blocked;               /* the kernel takes no more bytes for now */
    bool dead;                  /* to be closed at the end of the round */
    uint64_t since;             /* when it was accepted, in ns */
};

/* The core writes these while Python reads them. */
struct core_counts {
    uint64_t connections, bytes_in, bytes_out, chunks, updates, refused, orders, busy_ns;
};

struct order {
    uint64_t id; /* of the job to remove, if `job` is NULL */
    struct job *job;
    bool stop;
    struct order *next;
};

struct core {
    int listener, epoll, waker, events;
    _Atomic(struct order *) orders;
    struct job *jobs;
    struct connection *connection[MOST_CONNECTIONS];
    uint32_t connections;
    uint64_t now, ticked; /* the beginning of the round, and of the last one with a tick, in ns */
    bool stopped;
    bool has_dead; /* a connection is dead */
    bool full;     /* accept no connection for now: there is no room for another socket */
    struct core_counts counts;
};

/* Marks a connection as dead. It is closed when nothing can refer to it any more. */
static inline void close_later(struct core *core, struct connection *c)
{
    c->dead = core->has_dead = true;
}

/* reports.c */
void report(struct core *core, const struct job *job, enum core_event kind, uint32_t rank,
            uint32_t rule);
void refuse(struct core *core, struct connection *c, enum violation rule);

/* frames.c: the handling of frames. The first two return false if the connection was refused. */
bool begin_frame(struct core *core, struct connection *c);
bool end_frame(struct core *core, struct connection *c);
void flush(struct core *core, struct connection *c);
void remove_worker(struct core *core, struct job *job, uint32_t rank);
void fail_if_silent(struct core *core, struct job *job);

#endif
