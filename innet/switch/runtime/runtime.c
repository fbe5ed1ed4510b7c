/* Ports and the packet loop. The loop allocates no memory for packets. */

#define _GNU_SOURCE
#include "cables.h"
#include "cores.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RECEIVE_BATCH = 16 };
enum { SHARED_BATCH = 128 }; /* the most frames of a cable or a core before others have a turn */
enum { XDP_BATCH = 64 };     /* the same for an AF_XDP socket */
enum { FETCHED = 4 }; /* frames whose cells are fetched before the first of them is processed */
/* The 17 additional cache lines keep the places from all starting at the same set of the cache. */
enum { FRAME_PLACE = RT_MAX_FRAME + 17 * CACHE_LINE };
enum { MAC_ADDRESSES = 12, VLAN_TAG = 4 };
enum { PASSES = 1024 }; /* the most further passes of packets during one batch of frames */

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
    watch(sw->poller, sw->waker, RT_MAX_PORTS, PORT_EVENT);
    sw->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sw->cores = 1;
    sw->peers[0] = sw;
    watch(sw->poller, sw->bell, RT_MAX_PORTS, CORE_EVENT);
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

/* ---- sending ----------------------------------------------------------------------------------- */

static void not_sent(struct port *port, uint32_t frames, uint32_t bytes)
{
    port->send_failures += frames;
    port->out.packets -= frames;
    port->out.bytes -= bytes;
}

static void send_segments(struct port *port)
{
    char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec vector = {port->out_buffer, port->out_bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (port->out_frames > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = UDP_SEGMENT;
        header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t segment = (uint16_t)port->segment;
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
    }
    /* The error can stem from an earlier packet that was refused. Try this one once more. */
    if (sendmsg(port->fd, &message, MSG_DONTWAIT) < 0
        && (errno != ECONNREFUSED || sendmsg(port->fd, &message, MSG_DONTWAIT) < 0))
        not_sent(port, port->out_frames, port->out_bytes);
}

static void send_frames(struct port *port)
{
    struct mmsghdr messages[MOST_SEGMENTS];
    struct iovec vectors[MOST_SEGMENTS];
    uint32_t left = port->out_bytes;
    for (uint32_t i = 0; i < port->out_frames; i++) {
        uint32_t size = left < port->segment ? left : port->segment;
        vectors[i] = (struct iovec){port->out_buffer + (size_t)i * port->segment, size};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
        left -= size;
    }
    for (uint32_t sent = 0; sent < port->out_frames;) {
        int n = sendmmsg(port->fd, messages + sent, port->out_frames - sent, MSG_DONTWAIT);
        if (n <= 0) { /* only the frame that failed is lost, as on a wire */
            not_sent(port, 1, (uint32_t)vectors[sent].iov_len);
            n = 1;
        }
        sent += (uint32_t)n;
    }
}

static void publish_frames(struct port *port)
{
    if (port->cable.memory)
        ring_publish(&port->cable.out);
    else /* the worker has ended since */
        not_sent(port, port->out_frames, port->out_bytes);
}

static bool has_xdp(const struct port *port)
{
    return port->xdp && port->xdp->now && !port->xdp->now->gone;
}

static void flush_port(struct port *port)
{
    if (has_xdp(port))
        xdp_push(port->xdp->now);
    if (!port->out_frames)
        return;
    port->out.packets += port->out_frames;
    port->out.bytes += port->out_bytes;
    if (port->kind == PORT_SEGMENTS)
        send_segments(port);
    else if (port->kind == PORT_SHARED_MEMORY)
        publish_frames(port);
    else
        send_frames(port);
    port->out_frames = port->out_bytes = 0;
}

static void flush_all(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->dirty_count; i++) {
        struct port *port = &sw->ports[sw->dirty[i]];
        flush_port(port);
        port->queued = false;
    }
    sw->dirty_count = 0;
    replication_flush(&sw->replication);
}

/* A frame joins the waiting ones if all of these have the same size. The new frame may be shorter, but
 * not empty: the kernel makes no datagram of it. */
static bool fits(const struct port *port, uint32_t bytes)
{
    return port->segment && bytes && port->out_frames < MOST_SEGMENTS
           && port->out_bytes + bytes <= MOST_SENT_BYTES && bytes <= port->segment
           && port->out_bytes == port->out_frames * port->segment;
}

static struct port *find_port(struct sw *sw, uint32_t number)
{
    return number < RT_MAX_PORTS && sw->ports[number].kind ? &sw->ports[number] : NULL;
}

static uint8_t *room_in_buffer(struct port *port, uint32_t bytes)
{
    if (port->out_frames && !fits(port, bytes))
        flush_port(port);
    if (!port->out_frames)
        port->segment = bytes;
    return port->out_buffer + port->out_bytes;
}

/* In a ring, an empty frame would mean that there is no frame. */
static uint8_t *room_in_cable(struct port *port, uint32_t bytes)
{
    struct shared_cable *cable = &port->cable;
    return cable->memory && bytes ? ring_reserve(&cable->out, bytes, program.header_bytes) : NULL;
}

/* What does not fit into the memory shared with XDP leaves through the packet socket. So does an empty
 * frame: the packet socket refuses it with an error, but XDP skips it, and may keep its chunk. */
static uint8_t *room_in_xdp(struct port *port, uint32_t bytes)
{
    if (!has_xdp(port) || !bytes)
        return NULL;
    return xdp_room(port->xdp->now, bytes + program.header_bytes);
}

/* Returns the place where the program writes a port's next frame, before it emits the frame. Behind the
 * frame is room for the headers of a truncated packet, which are written whole. */
uint8_t *rt_room(struct sw *sw, uint32_t number, uint32_t bytes)
{
    struct port *port = find_port(sw, number);
    if (!port || bytes > RT_MAX_FRAME)
        return sw->nowhere;
    if (port->kind == PORT_SHARED_MEMORY)
        port->room = room_in_cable(port, bytes);
    else if (!(port->direct = (port->room = room_in_xdp(port, bytes))))
        port->room = room_in_buffer(port, bytes);
    return port->room ? port->room : sw->nowhere;
}

void rt_emit(struct sw *sw, uint32_t number, uint32_t bytes)
{
    struct port *port = find_port(sw, number);
    if (!port || bytes > RT_MAX_FRAME) {
        rt_dropped(sw, port ? DROP_TOO_LONG : DROP_NO_SUCH_PORT);
        return;
    }
    if (!port->room) { /* no worker is connected, its ring is full, or the frame is empty */
        port->send_failures++;
        return;
    }
    if (sw->egress_hook)
        sw->egress_hook(sw->egress_hook_context, port->room, bytes);
    if (port->capture_out >= 0)
        capture_frame(port->capture_out, port->room, bytes);
    if (port->direct) {
        xdp_queue(port->xdp->now, bytes);
        port->out.packets++;
        port->out.bytes += bytes;
    } else {
        if (port->kind == PORT_SHARED_MEMORY)
            ring_commit(&port->cable.out, bytes);
        port->out_bytes += bytes;
        port->out_frames++;
    }
    if (!port->queued) {
        port->queued = true;
        sw->dirty[sw->dirty_count++] = number;
    }
}

/* Returns how many frames of a port wait in the kernel for the link. The kernel only tells their memory,
 * so small frames count for less. The queue is looked at once for all frames that leave together. A
 * cable in shared memory has no such queue. */
uint32_t rt_queue_depth(struct sw *sw, uint32_t number)
{
    struct port *port = find_port(sw, number);
    int bytes = 0;
    if (!port || port->kind == PORT_SHARED_MEMORY)
        return 0;
    if (has_xdp(port))
        return XDP_CHUNKS - port->xdp->now->free;
    if (!port->out_frames)
        port->depth = ioctl(port->fd, SIOCOUTQ, &bytes) ? 0 : (uint32_t)bytes / FRAME_MEMORY;
    return port->depth;
}

/* ---- receiving --------------------------------------------------------------------------------- */

static bool find_control(struct msghdr *message, int level, int type, void *data, size_t bytes)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == level && c->cmsg_type == type) {
            memcpy(data, CMSG_DATA(c), bytes);
            return true;
        }
    return false;
}

static uint32_t segment_of(struct msghdr *message, uint32_t bytes)
{
    int segment;
    bool found = find_control(message, IPPROTO_UDP, UDP_GRO, &segment, sizeof segment);
    return found && segment > 0 ? (uint32_t)segment : bytes;
}

/* Linux takes the VLAN tag out of a frame before a packet socket sees it. This puts the tag back, into
 * the room in front of the frame, and returns the bytes that it takes. */
static uint32_t restore_vlan_tag(struct msghdr *message, uint8_t *frame)
{
    struct tpacket_auxdata about;
    if (!find_control(message, SOL_PACKET, PACKET_AUXDATA, &about, sizeof about)
        || !(about.tp_status & TP_STATUS_VLAN_VALID))
        return 0;
    uint16_t tag[] = {htons(about.tp_vlan_tpid), htons(about.tp_vlan_tci)};
    memmove(frame - VLAN_TAG, frame, MAC_ADDRESSES);
    memcpy(frame - VLAN_TAG + MAC_ADDRESSES, tag, VLAN_TAG);
    return VLAN_TAG;
}

/* Takes packets that wait through another pass, before new packets. The number of passes is limited to
 * `*passes`, so that a packet that never ends does not keep the switch from the others. */
static void finish_passes(struct sw *sw, uint32_t *passes)
{
    struct replication *r = &sw->replication;
    struct pending *packet;
    for (; *passes; --*passes) {
        if ((packet = replication_next(r, RT_CLONES))) {
            program_clone(sw, sw->state, packet);
            replication_finish(r, RT_CLONES);
        } else if ((packet = replication_next(r, RT_AGAIN))) {
            program_again(sw, sw->state, packet);
            replication_finish(r, RT_AGAIN);
        } else {
            return;
        }
    }
}

static bool passes_wait(const struct sw *sw)
{
    return sw->replication.queues[RT_CLONES].count || sw->replication.queues[RT_AGAIN].count;
}

static void process_frame(struct sw *sw, uint32_t number, uint8_t *frame, uint32_t bytes,
                          uint32_t *passes)
{
    struct port *port = &sw->ports[number];
    port->in.packets++;
    port->in.bytes += bytes;
    if (port->capture_in >= 0)
        capture_frame(port->capture_in, frame, bytes);
    program_process(sw, sw->state, number, frame, bytes);
    finish_passes(sw, passes);
}

/* Processes a frame on the core that owns its key. There is room to hand one frame over. */
static void spread_frame(struct sw *sw, uint32_t number, uint8_t *frame, uint32_t bytes,
                         uint32_t *passes)
{
    uint32_t core = core_of_frame(sw, number, frame, bytes);
    if (core == sw->core)
        process_frame(sw, number, frame, bytes, passes);
    else
        hand_over(sw, core, number, frame, bytes);
}

static void process_batch(struct sw *sw, uint32_t number, struct mmsghdr *messages, int count)
{
    uint32_t passes = PASSES;
    sw->now = now_ns(sw);
    for (int i = 0; i < count; i++) {
        uint8_t *frames = messages[i].msg_hdr.msg_iov->iov_base;
        uint32_t restored = restore_vlan_tag(&messages[i].msg_hdr, frames);
        frames -= restored;
        uint32_t bytes = messages[i].msg_len + restored;
        if (messages[i].msg_hdr.msg_flags & MSG_TRUNC || bytes > RT_MAX_FRAME) {
            rt_dropped(sw, DROP_TOO_LONG);
            continue;
        }
        uint32_t step = segment_of(&messages[i].msg_hdr, bytes);
        for (uint32_t at = 0; at < bytes; at += step) {
            uint32_t length = bytes - at < step ? bytes - at : step;
            spread_frame(sw, number, frames + at, length, &passes);
        }
    }
    cores_publish(sw);
}

static void receive_batch(struct sw *sw, uint32_t number)
{
    struct mmsghdr messages[RECEIVE_BATCH];
    struct iovec vectors[RECEIVE_BATCH];
    char control[RECEIVE_BATCH][CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    for (int i = 0; i < RECEIVE_BATCH; i++) {
        uint8_t *buffer = sw->receive_buffer + (size_t)i * FRAME_PLACE;
        vectors[i] = (struct iovec){buffer + VLAN_TAG, RT_MAX_FRAME};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i],
                                                   .msg_iovlen = 1,
                                                   .msg_control = control[i],
                                                   .msg_controllen = sizeof control[i]}};
    }
    /* All frames of these messages can be handed over to one core. */
    uint32_t most = cores_room(sw) / (sw->ports[number].kind == PORT_SEGMENTS ? MOST_SEGMENTS : 1);
    most = most < RECEIVE_BATCH ? most : RECEIVE_BATCH;
    int count = recvmmsg(sw->ports[number].fd, messages, most, MSG_DONTWAIT, NULL);
    if (count > 0) /* the next round takes the rest */
        process_batch(sw, number, messages, count);
}

/* Takes up to `most` frames out of a ring, and fetches their cells into the cache. Returns how many. */
static uint32_t fetch_frames(struct sw *sw, uint32_t number, uint32_t *lengths, uint32_t most)
{
    struct ring_reader *in = &sw->ports[number].cable.in;
    uint32_t count = 0;
    for (; count < most; count++) {
        uint8_t *frame = sw->receive_buffer + (size_t)count * FRAME_PLACE;
        if (!(lengths[count] = ring_read(in, frame, RT_MAX_FRAME)))
            break;
        if (program.is_keyed)
            program_fetch(sw->state, program_key(sw, number, frame, lengths[count]));
    }
    return count;
}

static void read_frames(struct sw *sw, uint32_t number)
{
    uint32_t passes = PASSES, lengths[FETCHED], count;
    sw->now = now_ns(sw);
    uint32_t room = cores_room(sw), most = room < SHARED_BATCH ? room : SHARED_BATCH;
    for (; most; most -= count) {
        count = fetch_frames(sw, number, lengths, most < FETCHED ? most : FETCHED);
        if (!count)
            break;
        for (uint32_t i = 0; i < count; i++)
            spread_frame(sw, number, sw->receive_buffer + (size_t)i * FRAME_PLACE, lengths[i],
                         &passes);
    }
    ring_release(&sw->ports[number].cable.in);
    cores_publish(sw);
}

/* Takes frames that another core has received. */
static void take_frames(struct sw *sw, uint32_t from)
{
    uint32_t passes = PASSES, there = handed_over(sw, from);
    uint32_t frames = there < SHARED_BATCH ? there : SHARED_BATCH;
    for (uint32_t i = 0; i < frames; i++) {
        uint8_t *frame;
        struct handed *next = handed_frame(sw, from, i, &frame);
        process_frame(sw, next->port, frame, next->bytes, &passes);
    }
    if (frames)
        cores_take(sw, from, frames);
}

static void pull_frames(struct sw *sw, uint32_t number)
{
    struct xdp *xdp = sw->ports[number].xdp->now;
    uint32_t passes = PASSES;
    sw->now = now_ns(sw);
    for (uint32_t i = 0; i < xdp->count; i++) {
        struct xdp_queue *queue = &xdp->queues[i];
        uint32_t room = cores_room(sw);
        uint32_t count = xdp_look(queue, room < XDP_BATCH ? room : XDP_BATCH);
        for (uint32_t j = 0; j < count; j++) {
            struct xdp_desc frame = xdp_frame(queue, j);
            spread_frame(sw, number, queue->chunks + frame.addr, frame.len, &passes);
        }
        xdp_release(queue, count);
    }
    cores_publish(sw);
}

static struct ring_reader *shared_in(struct sw *sw, uint32_t which)
{
    struct shared_cable *cable = &sw->ports[sw->shared[which]].cable;
    return cable->memory ? &cable->in : NULL;
}

static void let_others_in(struct sw *sw)
{
    if (lock_wanted(sw)) {
        flush_all(sw);
        rt_release(sw);
        packet_lock(sw);
    }
}

static void read_cables(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->shared_count; i++) {
        struct ring_reader *in = shared_in(sw, i);
        if (in && ring_look(in)) {
            read_frames(sw, sw->shared[i]);
            let_others_in(sw);
        }
    }
}

static void read_cores(struct sw *sw)
{
    if (sw->cores == 1)
        return;
    sw->now = now_ns(sw);
    for (uint32_t i = 0; i < sw->cores; i++) {
        take_frames(sw, i);
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

static void watch_sockets(struct sw *sw, uint32_t number)
{
    const struct xdp *xdp = sw->ports[number].xdp->now;
    for (uint32_t i = 0; xdp && i < xdp->count; i++)
        watch(sw->poller, xdp->queues[i].socket, number, FRAMES_EVENT);
}

static void handle_xdp(struct sw *sw, uint32_t number, enum event_kind kind)
{
    if (kind == FRAMES_EVENT)
        pull_frames(sw, number);
    else if (xdp_take_next(sw->ports[number].xdp))
        watch_sockets(sw, number);
}

static void handle_event(struct sw *sw, uint32_t number, enum event_kind kind)
{
    if (sw->ports[number].kind == PORT_SHARED_MEMORY)
        handle_cable(sw, number, kind);
    else if (kind == PORT_EVENT)
        receive_batch(sw, number);
    else
        handle_xdp(sw, number, kind);
}

/* Adds a port before rt_run. All cores send to it, and one of them receives its frames. If it is for a
 * cable in shared memory, all cores receive, and the first one takes the worker. */
void rt_add_port(struct sw *sw, uint32_t number, int fd, int kind, uint32_t receiver)
{
    sw->ports[number].fd = fd;
    sw->ports[number].kind = (enum port_kind)kind;
    if (kind != PORT_SHARED_MEMORY)
        sw->ports[number].out_buffer =
            needed(zeroed(1, (size_t)RT_MAX_FRAME + MOST_SENT_BYTES + program.header_bytes));
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

/* Returns whether the kernel has left frames, which are then pushed again even if no others follow. */
static bool push_waits(const struct port *port) { return has_xdp(port) && port->xdp->now->waiting; }

static void push_again(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->xdp_count; i++)
        if (push_waits(&sw->ports[sw->xdp[i]]))
            xdp_push(sw->ports[sw->xdp[i]].xdp->now);
}

/* The frames of all ports leave together at the end of a round, in few system calls. A thread that
 * takes the lock finds nothing half done: all frames of a counted packet have left. */
static bool run_round(struct sw *sw, const struct epoll_event *events, int count, bool *more)
{
    bool stopped = false;
    uint32_t passes = PASSES;
    packet_lock(sw);
    for (int i = 0; i < count; i++) {
        uint32_t number = (uint32_t)events[i].data.u64;
        enum event_kind kind = (enum event_kind)(events[i].data.u64 >> 32);
        if (kind == CORE_EVENT)
            cores_awake(sw);
        else if (number == RT_MAX_PORTS)
            stopped = true;
        else
            handle_event(sw, number, kind);
        let_others_in(sw);
    }
    read_cables(sw);
    read_cores(sw);
    sw->now = now_ns(sw);
    finish_passes(sw, &passes);
    push_again(sw);
    flush_all(sw);
    *more = passes_wait(sw) || frames_wait(sw);
    rt_release(sw);
    return !stopped;
}

/* Returns how long to sleep, in ms, or -1 for until there is an event. */
static int patience(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->xdp_count; i++)
        if (push_waits(&sw->ports[sw->xdp[i]]))
            return 1;
    return -1;
}

/* Runs the packet loop until rt_stop. */
void rt_run(struct sw *sw)
{
    struct epoll_event events[64];
    int count;
    bool more = true; /* there is work, so do not sleep */
    do
        count = epoll_wait(sw->poller, events, 64, more ? 0 : patience(sw));
    while (run_round(sw, events, count, &more));
}

/* Processes the frames that other cores have handed over, when the loops of all cores have stopped. */
void rt_finish(struct sw *sw)
{
    rt_hold(sw);
    for (uint32_t i = 0; sw->cores > 1 && i < sw->cores; i++)
        while (handed_over(sw, i))
            take_frames(sw, i);
    flush_all(sw);
    rt_release(sw);
}

void rt_stop(struct sw *sw)
{
    uint64_t one = 1;
    ssize_t written = write(sw->waker, &one, sizeof one);
    (void)written;
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

/* For measuring: runs the same frame through the program `times` times. The output leaves through the
 * ports that there are. */
void rt_exercise(struct sw *sw, uint32_t port, const uint8_t *frame, uint32_t length,
                 uint32_t times)
{
    rt_hold(sw);
    sw->now = now_ns(sw);
    for (uint32_t i = 0; i < times; i++) {
        uint32_t passes = PASSES;
        program_process(sw, sw->state, port, frame, length);
        finish_passes(sw, &passes);
    }
    flush_all(sw);
    rt_release(sw);
}
