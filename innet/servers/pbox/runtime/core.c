/* The event loop of a core. */

#include "state.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 200, READS = 2 * BATCH };

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void close_connection(struct core *core, struct connection *c)
{
    /* While a forked child has a copy of the socket, epoll and the peer do not notice that it is closed. */
    epoll_ctl(core->epoll, EPOLL_CTL_DEL, c->socket, NULL);
    shutdown(c->socket, SHUT_RDWR);
    close(c->socket);
    core->connection[c->slot] = core->connection[--core->connections];
    core->connection[c->slot]->slot = c->slot;
    core->counts.connections = core->connections;
    if (c->job)
        remove_worker(core, c->job, c->rank);
    free(c->replies);
    free(c);
}

/* Listens, but not while there is no room for another socket. */
static void watch_listener(struct core *core)
{
    struct epoll_event event = {.events = core->full ? 0 : EPOLLIN, .data.ptr = &core->listener};
    epoll_ctl(core->epoll, EPOLL_CTL_MOD, core->listener, &event);
}

/* Makes room for another connection: ends the one that has been in no job for the longest time. It is closed
 * at the end of the round, before the next connection is accepted. */
static void evict_silent(struct core *core)
{
    struct connection *oldest = NULL;
    for (uint32_t i = 0; i < core->connections; i++) {
        struct connection *c = core->connection[i];
        if (!c->job && !c->dead && (!oldest || c->since < oldest->since))
            oldest = c;
    }
    if (oldest)
        refuse(core, oldest, BAD_CROWD);
}

static void accept_connection(struct core *core)
{
    int socket = accept4(core->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
        core->full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        watch_listener(core);
        return;
    }
    if (core->connections == MOST_CONNECTIONS - 1)
        evict_silent(core);
    struct connection *c = core->connections < MOST_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        core->counts.refused++;
        close(socket);
        return;
    }
    int on = 1, dead_after_ms = DEAD_AFTER_MS;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after_ms, sizeof dead_after_ms);
    c->socket = socket;
    c->slot = core->connections;
    c->since = core->now;
    core->connection[core->connections++] = c;
    core->counts.connections = core->connections;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(core->epoll, EPOLL_CTL_ADD, socket, &event))
        refuse(core, c, BAD_CROWD);
}

static void remove_job(struct core *core, uint64_t id)
{
    struct job **at = &core->jobs;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct job *job = *at;
    if (!job)
        return;
    *at = job->next;
    job->failed = true;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->connection[rank]) {
            job->connection[rank]->job = NULL;
            close_later(core, job->connection[rank]);
        }
    report(core, job, EVENT_REMOVED, 0, 0);
    job_free(job);
}

static void carry_out_orders(struct core *core)
{
    struct order *taken = atomic_exchange(&core->orders, NULL), *in_order = NULL;
    while (taken) {
        struct order *next = taken->next;
        taken->next = in_order;
        in_order = taken;
        taken = next;
    }
    while (in_order) {
        struct order *order = in_order;
        in_order = order->next;
        core->counts.orders++;
        if (order->stop)
            core->stopped = true;
        else if (order->job) {
            order->job->next = core->jobs;
            core->jobs = order->job;
        } else
            remove_job(core, order->id);
        free(order);
    }
}

/* Reads a bounded number of times, so that the other connections are served as well. */
static void receive_frames(struct core *core, struct connection *c)
{
    for (uint32_t i = 0; i < READS && !c->dead; i++) {
        enum moved moved = receive(c->socket, &c->in, &core->counts.bytes_in);
        if (moved == CLOSED)
            close_later(core, c);
        if (moved != MOVED)
            break;
        while (!c->dead && c->in.left == 0) {
            if (c->in.busy) {
                c->in.busy = false;
                if (!end_frame(core, c))
                    break;
            }
            if (c->in.have < sizeof c->in.next)
                break;
            c->in.now = c->in.next;
            c->in.have = 0;
            if (c->in.now.kind == KIND_HELLO)
                carry_out_orders(core); /* the job was ordered before its worker knew of it */
            c->in.busy = begin_frame(core, c);
        }
    }
    if (c->owed && !c->dead)
        flush(core, c);
}

static void tick(struct core *core)
{
    core->ticked = core->now;
    for (uint32_t i = core->connections; i-- > 0;) {
        struct connection *c = core->connection[i];
        if (!c->job && !c->dead && core->now - c->since > HELLO_WITHIN_S * 1000000000ULL)
            refuse(core, c, BAD_SLOW);
    }
    if (core->full) {
        core->full = false;
        watch_listener(core);
    }
    for (struct job *job = core->jobs; job; job = job->next)
        fail_if_silent(core, job);
}

struct core *core_new(int listener, int events)
{
    struct core *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    core->listener = listener;
    core->events = events;
    core->epoll = epoll_create1(EPOLL_CLOEXEC);
    core->waker = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event listen = {.events = EPOLLIN, .data.ptr = &core->listener};
    struct epoll_event waker = {.events = EPOLLIN, .data.ptr = &core->waker};
    if (core->epoll < 0 || core->waker < 0
        || epoll_ctl(core->epoll, EPOLL_CTL_ADD, listener, &listen)
        || epoll_ctl(core->epoll, EPOLL_CTL_ADD, core->waker, &waker)) {
        core_free(core);
        return NULL;
    }
    return core;
}

/* Queues an order. Any thread may call this. The core carries orders out in their order. */
static bool queue_order(struct core *core, struct order content)
{
    struct order *order = malloc(sizeof *order);
    if (!order)
        return false;
    *order = content;
    order->next = atomic_load(&core->orders);
    while (!atomic_compare_exchange_weak(&core->orders, &order->next, order))
        ;
    uint64_t one = 1;
    ssize_t written = write(core->waker, &one, sizeof one);
    (void)written;
    return true;
}

bool core_add(struct core *core, struct job *job)
{
    return queue_order(core, (struct order){.job = job});
}

bool core_remove(struct core *core, uint64_t job)
{
    return queue_order(core, (struct order){.id = job});
}

bool core_stop(struct core *core) { return queue_order(core, (struct order){.stop = true}); }

const struct core_counts *core_counts(const struct core *core) { return &core->counts; }

static void handle_event(struct core *core, const struct epoll_event *event)
{
    if (event->data.ptr == &core->listener) {
        accept_connection(core);
    } else if (event->data.ptr == &core->waker) {
        uint64_t count;
        ssize_t got = read(core->waker, &count, sizeof count);
        (void)got; /* every round carries out the orders */
    } else {
        struct connection *c = event->data.ptr;
        if (event->events & EPOLLOUT && !c->dead)
            flush(core, c);
        if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !c->dead)
            receive_frames(core, c);
    }
}

static void close_dead_connections(struct core *core)
{
    core->has_dead = false;
    for (uint32_t i = core->connections; i-- > 0;)
        if (core->connection[i]->dead)
            close_connection(core, core->connection[i]);
}

/* Runs until it is told to stop, and then frees all jobs. */
void core_run(struct core *core)
{
    struct epoll_event ready[64];
    while (!core->stopped) {
        int count = epoll_wait(core->epoll, ready, 64, TICK_MS);
        core->now = clock_ns();
        for (int i = 0; i < count; i++)
            handle_event(core, &ready[i]);
        carry_out_orders(core);
        if (core->now - core->ticked > TICK_MS * 1000000ULL)
            tick(core);
        if (core->has_dead) /* last: a later event of this round may be one of a dead connection */
            close_dead_connections(core);
        core->counts.busy_ns += clock_ns() - core->now;
    }
    while (core->connections)
        close_connection(core, core->connection[core->connections - 1]);
    while (core->jobs)
        remove_job(core, core->jobs->id);
}

/* Call it after core_run() has returned. The listener belongs to the caller. */
void core_free(struct core *core)
{
    close(core->epoll);
    close(core->waker);
    free(core);
}
