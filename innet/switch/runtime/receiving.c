/* Frames that arrive, on their way to the program. They come from a socket, a cable in shared memory,
 * AF_XDP sockets, or another core that has received them. */

#define _GNU_SOURCE
#include "cores.h"
#include "frames.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { SHARED_BATCH = 64 }; /* the most frames of a cable or a core at a time */
enum { XDP_BATCH = 64 };    /* the same for an AF_XDP socket */
enum { PEEKED = 256 };      /* the bytes of a later segment that its key is looked for in */
enum { FETCHED = 4 }; /* frames whose cells are fetched before the first of them is processed */
enum { MAC_ADDRESSES = 12, VLAN_TAG = 4 };
enum { MOST_RECEIVED = FRAME_PLACE - VLAN_TAG }; /* a super-frame's IP packet has 64 KiB */
enum { MOST_CUT = 128 }; /* the most frames that the kernel makes of UDP's super-frame */
enum { PASSES = 1024 };  /* the most further passes of packets during one batch of frames */

/* ---- further passes ---------------------------------------------------------------------------- */

/* Limits the passes until the next call, so that a packet that never ends does not keep the switch from
 * the others. */
void allow_passes(struct sw *sw) { sw->passes = PASSES; }

/* Takes packets that wait through another pass, before new packets. */
void finish_passes(struct sw *sw)
{
    struct replication *r = &sw->replication;
    struct pending *packet;
    for (; sw->passes; sw->passes--) {
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

bool passes_wait(const struct sw *sw)
{
    return sw->replication.queues[RT_CLONES].count || sw->replication.queues[RT_AGAIN].count;
}

/* ---- one frame ------------------------------------------------------------------------------- */

/* All packets of a batch arrive at the same time, by the switch's clock. */
static void begin_batch(struct sw *sw)
{
    sw->now = now_ns(sw);
    allow_passes(sw);
}

/* Returns whether a frame's checksum can stay partial. The program must not mistake it for another
 * one: a zero, which it may have written itself, is never partial. */
static bool may_defer(const struct port *port, const struct partial *arrived)
{
    const uint8_t *checksum = arrived->frame + arrived->at;
    return program.defers && port->capture_in < 0 && (checksum[0] || checksum[1]);
}

/* The frame's partial checksum, if it has one, is in sw->arrived. */
static void process_frame(struct sw *sw, uint32_t number, uint8_t *frame, uint32_t bytes)
{
    struct port *port = &sw->ports[number];
    port->in.packets++;
    port->in.bytes += bytes;
    if (sw->arrived.at && !may_defer(port, &sw->arrived))
        partial_complete(&sw->arrived);
    if (port->capture_in >= 0)
        capture_frame(port->capture_in, frame, bytes);
    program_process(sw, sw->state, number, frame, bytes);
    sw->arrived.at = 0;
    finish_passes(sw);
}

/* Processes a frame on the core that owns its key. There is room to hand one frame over. */
static void spread_frame(struct sw *sw, uint32_t number, uint8_t *frame, uint32_t bytes)
{
    uint32_t core = core_of_frame(sw, number, frame, bytes);
    if (core == sw->core)
        process_frame(sw, number, frame, bytes);
    else
        hand_over(sw, core, number, frame, bytes);
    sw->arrived.at = 0;
}

/* Fetches the cells of a later segment into the cache. The key is found in the first bytes, or the wrong
 * cells are fetched, which does no harm. */
static void fetch_segment(struct sw *sw, uint32_t number, const struct cut *cut, uint32_t ahead)
{
    uint8_t room[PEEKED];
    uint32_t bytes = program.is_keyed ? cut_peek(cut, ahead, room, sizeof room) : 0;
    if (bytes)
        program_fetch(sw->state, program_key(sw, number, room, bytes));
}

/* Processes a frame as the kernel describes it: cut, if it is a super-frame. */
static void take_described(struct sw *sw, uint32_t number, uint8_t *frame, uint32_t bytes,
                           const struct virtio_net_hdr *about, uint32_t restored)
{
    if (about->gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        sw->arrived = (struct partial){.frame = frame, .bytes = bytes};
        if (bytes > RT_MAX_FRAME)
            rt_dropped(sw, DROP_TOO_LONG);
        else if (!describe_partial(&sw->arrived, about, restored))
            rt_dropped(sw, DROP_OFFLOAD);
        else
            spread_frame(sw, number, frame, bytes);
        return;
    }
    struct cut cut;
    if (!cut_begin(&cut, frame, bytes, about, restored)) {
        rt_dropped(sw, DROP_OFFLOAD);
        return;
    }
    if (bytes > RT_MAX_FRAME && cut.layout.head + cut.size > RT_MAX_FRAME) {
        rt_dropped(sw, DROP_TOO_LONG);
        return;
    }
    for (uint32_t i = 0; i < FETCHED; i++)
        fetch_segment(sw, number, &cut, i);
    while (cut_next(&cut, &sw->arrived)) {
        spread_frame(sw, number, sw->arrived.frame, sw->arrived.bytes);
        fetch_segment(sw, number, &cut, FETCHED - 1);
    }
}

/* ---- frames of a socket ---------------------------------------------------------------------- */

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

static void process_message(struct sw *sw, uint32_t number, struct msghdr *message, uint32_t bytes)
{
    const struct iovec *vectors = message->msg_iov;
    bool is_described = message->msg_iovlen > 1;
    uint8_t *frames = vectors[is_described].iov_base;
    uint32_t described = is_described ? (uint32_t)vectors[0].iov_len : 0;
    if (bytes < described) {
        rt_dropped(sw, DROP_OFFLOAD);
        return;
    }
    uint32_t restored = restore_vlan_tag(message, frames);
    frames -= restored;
    bytes += restored - described;
    if (message->msg_flags & MSG_TRUNC || (bytes > RT_MAX_FRAME && !is_described)) {
        rt_dropped(sw, DROP_TOO_LONG);
        return;
    }
    if (is_described) {
        take_described(sw, number, frames, bytes, vectors[0].iov_base, restored);
        return;
    }
    uint32_t step = segment_of(message, bytes);
    for (uint32_t at = 0; at < bytes; at += step) {
        uint32_t length = bytes - at < step ? bytes - at : step;
        spread_frame(sw, number, frames + at, length);
    }
}

/* Returns the most frames in one message of a port, as far as the kernel limits them. */
static uint32_t most_segments(enum port_kind kind)
{
    return kind == PORT_SEGMENTS ? MOST_SEGMENTS : kind == PORT_SUPER_FRAMES ? MOST_CUT : 1;
}

void receive_from_socket(struct sw *sw, uint32_t number)
{
    enum port_kind kind = sw->ports[number].kind;
    struct mmsghdr messages[RECEIVE_BATCH];
    struct virtio_net_hdr descriptions[RECEIVE_BATCH];
    struct iovec vectors[RECEIVE_BATCH][2];
    char control[RECEIVE_BATCH][CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    bool is_described = kind == PORT_SUPER_FRAMES;
    for (int i = 0; i < RECEIVE_BATCH; i++) {
        uint8_t *buffer = sw->receive_buffer + (size_t)i * FRAME_PLACE;
        vectors[i][0] = (struct iovec){&descriptions[i], sizeof descriptions[i]};
        vectors[i][is_described] =
            (struct iovec){buffer + VLAN_TAG, is_described ? MOST_RECEIVED : RT_MAX_FRAME};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = vectors[i],
                                                   .msg_iovlen = is_described ? 2 : 1,
                                                   .msg_control = control[i],
                                                   .msg_controllen = sizeof control[i]}};
    }
    /* All frames of these messages can be handed over to one core. */
    uint32_t most = cores_room(sw) / most_segments(kind);
    most = most < RECEIVE_BATCH ? most : RECEIVE_BATCH;
    int count = recvmmsg(sw->ports[number].fd, messages, most, MSG_DONTWAIT, NULL);
    if (count < 0 && errno == EINVAL) /* a frame of which the kernel has no description, now gone */
        rt_dropped(sw, DROP_OFFLOAD);
    if (count <= 0) /* the next round takes the rest */
        return;
    begin_batch(sw);
    for (int i = 0; i < count; i++)
        process_message(sw, number, &messages[i].msg_hdr, messages[i].msg_len);
    cores_publish(sw);
}

/* ---- frames of a cable in shared memory ------------------------------------------------------ */

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

void receive_from_cable(struct sw *sw, uint32_t number)
{
    uint32_t lengths[FETCHED], count;
    begin_batch(sw);
    uint32_t room = cores_room(sw), most = room < SHARED_BATCH ? room : SHARED_BATCH;
    for (; most; most -= count) {
        count = fetch_frames(sw, number, lengths, most < FETCHED ? most : FETCHED);
        if (!count)
            break;
        for (uint32_t i = 0; i < count; i++)
            spread_frame(sw, number, sw->receive_buffer + (size_t)i * FRAME_PLACE, lengths[i]);
    }
    ring_release(&sw->ports[number].cable.in);
    cores_publish(sw);
}

/* ---- frames of AF_XDP sockets ---------------------------------------------------------------- */

void receive_from_xdp(struct sw *sw, uint32_t number)
{
    struct xdp *xdp = sw->ports[number].xdp->now;
    begin_batch(sw);
    for (uint32_t i = 0; i < xdp->count; i++) {
        struct xdp_queue *queue = &xdp->queues[i];
        uint32_t room = cores_room(sw);
        uint32_t count = xdp_look(queue, room < XDP_BATCH ? room : XDP_BATCH);
        for (uint32_t j = 0; j < count; j++) {
            struct xdp_desc frame = xdp_frame(queue, j);
            spread_frame(sw, number, queue->chunks + frame.addr, frame.len);
        }
        xdp_release(queue, count);
    }
    cores_publish(sw);
}

/* ---- frames of another core ------------------------------------------------------------------ */

/* Takes frames that another core has received. */
void receive_from_core(struct sw *sw, uint32_t from)
{
    uint32_t there = handed_over(sw, from), frames = there < SHARED_BATCH ? there : SHARED_BATCH;
    allow_passes(sw);
    for (uint32_t i = 0; i < frames; i++) {
        uint8_t *frame;
        struct handed *next = handed_frame(sw, from, i, &frame);
        sw->arrived = (struct partial){frame, next->bytes, next->start, next->at};
        process_frame(sw, next->port, frame, next->bytes);
    }
    if (frames)
        cores_take(sw, from, frames);
}
