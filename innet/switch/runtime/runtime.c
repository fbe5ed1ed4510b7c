/* A switch as a whole: its creation, its ports, and the packet loop. The loop allocates no memory for
 * packets. */

#define _GNU_SOURCE
#include "cables.h"
#include "cores.h"
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- creation ---------------------------------------------------------------------------------- */

void rt_destroy(struct sw *sw);

/* Returns NULL if there is not enough memory for the program. */
struct sw *rt_create(uint32_t drop_port)
{
    struct sw *sw = needed(zeroed(1, sizeof *sw));
    switch_create(sw);
    sw->drop_port = drop_port;
    sw->priority_queues = 1;
    sw->receive_buffer = needed(zeroed(RECEIVE_BATCH, FRAME_PLACE));
    sw->nowhere = needed(zeroed(1, (size_t)2 * RT_MAX_FRAME + program.header_bytes));
    bool enough = tables_create(sw);
    enough &= externs_create(&sw->externs);
    enough &= replication_create(&sw->replication);
    sw->poller = epoll_create1(EPOLL_CLOEXEC);
    sw->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch(sw->poller, sw->waker, 0, STOP_EVENT);
    sw->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sw->cores = 1;
    sw->peers[0] = sw;
    watch(sw->poller, sw->bell, 0, CORE_EVENT);
    if (enough)
        return sw;
    rt_destroy(sw);
    return NULL;
}

/* The caller owns the ports' file descriptors, and has stopped the loop. */
void rt_destroy(struct sw *sw)
{
    for (uint32_t i = 0; i < RT_MAX_PORTS; i++) {
        cable_close(sw, i);
        free(sw->ports[i].out_buffer);
        free(sw->ports[i].trains);
    }
    close(sw->poller);
    close(sw->waker);
    close(sw->bell);
    cores_destroy(sw);
    free(sw->receive_buffer);
    free(sw->nowhere);
    replication_destroy(&sw->replication);
    externs_destroy(&sw->externs);
    tables_destroy(sw);
    switch_destroy(sw);
    free(sw);
}

/* ---- ports ------------------------------------------------------------------------------------- */

static void watch_sockets(struct sw *sw, uint32_t number)
{
    const struct xdp *xdp = sw->ports[number].xdp->now;
    for (uint32_t i = 0; xdp && i < xdp->count; i++)
        watch(sw->poller, xdp->queues[i].socket, number, FRAMES_EVENT);
}

/* Adds a port before rt_run. All cores send to it, and one of them receives its frames. If it is for a
 * cable in shared memory, all cores receive, and the first one takes the worker. */
void rt_add_port(struct sw *sw, uint32_t number, int fd, int kind, const char *interface,
                 uint32_t receiver)
{
    sw->ports[number].fd = fd;
    sw->ports[number].kind = (enum port_kind)kind;
    if (kind != PORT_SHARED_MEMORY)
        sw->ports[number].out_buffer =
            needed(zeroed(1, (size_t)RT_MAX_FRAME + TRAINS_ROOM + program.header_bytes));
    if (kind == PORT_SUPER_FRAMES) {
        struct trains *trains = needed(zeroed(1, sizeof *trains));
        snprintf(trains->interface, sizeof trains->interface, "%s", interface);
        sw->ports[number].trains = trains;
    }
    sw->ports[number].capture_in = sw->ports[number].capture_out = -1;
    if (kind == PORT_SHARED_MEMORY) {
        sw->shared[sw->shared_count++] = number;
        receiver = 0;
    }
    if (sw->core == receiver)
        watch(sw->poller, fd, number, PORT_EVENT);
}

/* Called before rt_run. The port's own socket then only gets the frames that XDP leaves to it. One core
 * uses the AF_XDP sockets, and the others send through the port's own socket. */
void rt_use_xdp(struct sw *sw, uint32_t number, struct xdp_port *xdp, uint32_t receiver)
{
    if (sw->core != receiver)
        return;
    sw->ports[number].xdp = xdp;
    sw->xdp[sw->xdp_count++] = number;
    watch(sw->poller, xdp->bell, number, SOCKETS_EVENT);
    watch_sockets(sw, number);
}

/* Called before rt_run. */
void rt_set_egress_hook(struct sw *sw, egress_hook *hook, void *context)
{
    sw->egress_hook = hook;
    sw->egress_hook_context = context;
}

/* Called before rt_run with the files for a port's arriving and leaving frames. */
void rt_capture(struct sw *sw, uint32_t number, int in, int out)
{
    sw->ports[number].capture_in = in;
    sw->ports[number].capture_out = out;
}

struct port_counts {
    struct count in, out;
    uint64_t send_failures;
};

/* Adds this core's counts. */
void rt_port_counts(struct sw *sw, uint32_t number, struct port_counts *counts)
{
    rt_hold(sw);
    struct port *port = &sw->ports[number];
    add_count(&counts->in, &port->in);
    add_count(&counts->out, &port->out);
    counts->send_failures += port->send_failures;
    rt_release(sw);
}

/* ---- the packet loop --------------------------------------------------------------------------- */

static struct ring_reader *shared_in(struct sw *sw, uint32_t which)
{
    struct shared_cable *cable = &sw->ports[sw->shared[which]].cable;
    return cable->memory ? &cable->in : NULL;
}

/* Lets a call of the control plane have the lock, if one waits for it. */
static void let_others_in(struct sw *sw)
{
    if (lock_wanted(sw)) {
        flush_all(sw);
        rt_release(sw);
        packet_lock(sw);
    }
}

/* The frames of a batch leave at once, so that workers go on while the switch takes the next batch. */
static void receive_from_cables(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->shared_count; i++) {
        struct ring_reader *in = shared_in(sw, i);
        if (in && ring_look(in)) {
            receive_from_cable(sw, sw->shared[i]);
            flush_all(sw);
            let_others_in(sw);
        }
    }
}

static void receive_from_cores(struct sw *sw)
{
    if (sw->cores == 1)
        return;
    sw->now = now_ns(sw);
    for (uint32_t i = 0; i < sw->cores; i++) {
        receive_from_core(sw, i);
        let_others_in(sw);
    }
}

static bool cables_have_frames(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->shared_count; i++) {
        struct ring_reader *in = shared_in(sw, i);
        if (in && ring_look(in))
            return true;
    }
    return false;
}

/* Returns whether cables in shared memory or other cores have frames. If not, the next frame causes an
 * event. While there are frames, nobody has to wake this core, which would take a system call. */
static bool frames_wait(struct sw *sw)
{
    if (cables_have_frames(sw))
        return true;
    bool wait = sw->cores > 1 && !cores_sleep(sw);
    for (uint32_t i = 0; i < sw->shared_count; i++) {
        struct ring_reader *in = shared_in(sw, i);
        wait |= in && !ring_sleep(in);
    }
    return wait;
}

static void handle_cable(struct sw *sw, uint32_t number, enum event_kind kind)
{
    struct port *port = &sw->ports[number];
    if (kind == FRAMES_EVENT)
        cable_drain(port);
    else if (kind == PORT_EVENT)
        cable_accept(sw, number);
    else if (cable_is_closed(port))
        cable_close(sw, number);
}

static void handle_xdp(struct sw *sw, uint32_t number, enum event_kind kind)
{
    if (kind == FRAMES_EVENT)
        receive_from_xdp(sw, number);
    else if (xdp_take_next(sw->ports[number].xdp))
        watch_sockets(sw, number);
}

static void handle_port(struct sw *sw, uint32_t number, enum event_kind kind)
{
    if (sw->ports[number].kind == PORT_SHARED_MEMORY)
        handle_cable(sw, number, kind);
    else if (kind == PORT_EVENT)
        receive_from_socket(sw, number);
    else
        handle_xdp(sw, number, kind);
}

/* All other frames leave together at the end of a round, or with a cable's, in few system calls. A thread
 * that takes the lock finds nothing half done: all frames of a counted packet have left. */
static bool run_round(struct sw *sw, const struct epoll_event *events, int count, bool *more)
{
    bool stopped = false;
    packet_lock(sw);
    for (int i = 0; i < count; i++) {
        enum event_kind kind = kind_of(&events[i]);
        if (kind == STOP_EVENT)
            stopped = true;
        else if (kind == CORE_EVENT)
            cores_awake(sw);
        else
            handle_port(sw, port_of(&events[i]), kind);
        let_others_in(sw);
    }
    receive_from_cables(sw);
    receive_from_cores(sw);
    sw->now = now_ns(sw);
    allow_passes(sw);
    finish_passes(sw);
    push_again(sw);
    flush_all(sw);
    *more = passes_wait(sw) || frames_wait(sw);
    rt_release(sw);
    return !stopped;
}

/* Runs the packet loop until rt_stop. */
void rt_run(struct sw *sw)
{
    struct epoll_event events[64];
    int count;
    bool more = true; /* there is work, so do not sleep */
    do {
        int sleep_ms = more ? 0 : pushes_wait(sw) ? 1 : -1; /* -1: until there is an event */
        count = epoll_wait(sw->poller, events, 64, sleep_ms);
    } while (run_round(sw, events, count, &more));
}

/* Processes the frames that other cores have handed over, when the loops of all cores have stopped. */
void rt_finish(struct sw *sw)
{
    rt_hold(sw);
    for (uint32_t i = 0; sw->cores > 1 && i < sw->cores; i++)
        while (handed_over(sw, i))
            receive_from_core(sw, i);
    flush_all(sw);
    rt_release(sw);
}

void rt_stop(struct sw *sw)
{
    uint64_t one = 1;
    ssize_t written = write(sw->waker, &one, sizeof one);
    (void)written;
}

/* For measuring: runs the same frame through the program `times` times. The output leaves through the
 * ports that there are. */
void rt_exercise(struct sw *sw, uint32_t port, const uint8_t *frame, uint32_t length,
                 uint32_t times)
{
    rt_hold(sw);
    sw->now = now_ns(sw);
    for (uint32_t i = 0; i < times; i++) {
        allow_passes(sw);
        program_process(sw, sw->state, port, frame, length);
        finish_passes(sw);
    }
    flush_all(sw);
    rt_release(sw);
}
