/* Frames that leave. The program writes a frame to the room that rt_room gives it, and emits it. The
 * frames of all ports leave together when the packet loop flushes them. */

#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

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

/* ---- super-frames ------------------------------------------------------------------------------ */

enum { MOST_VECTORS = 2 * MOST_WAITING };

/* Gathers the parts of a train: its description, the first frame, and the payloads of the others. */
static struct iovec *gather(const struct port *port, const struct train *train,
                            struct virtio_net_hdr *about, struct iovec *vector)
{
    const struct trains *all = port->trains;
    uint8_t *frame = port->out_buffer + all->at[train->first];
    train_describe(train, frame, about);
    *vector++ = (struct iovec){about, sizeof *about};
    *vector++ = (struct iovec){frame, all->bytes[train->first]};
    for (uint32_t i = train->first + 1; i < train->first + train->count; i++) {
        uint32_t head = train->layout.head;
        *vector++ = (struct iovec){port->out_buffer + all->at[i] + head, all->bytes[i] - head};
    }
    return vector;
}

static uint32_t bytes_of(const struct trains *all, const struct train *train)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < train->count; i++)
        bytes += all->bytes[train->first + i];
    return bytes;
}

static void send_trains(struct port *port)
{
    struct trains *all = port->trains;
    struct mmsghdr messages[MOST_WAITING];
    struct virtio_net_hdr about[MOST_WAITING];
    struct iovec vectors[MOST_VECTORS], *next = vectors;
    for (uint32_t i = 0; i < all->count; i++) {
        struct iovec *first = next;
        next = gather(port, &all->trains[i], &about[i], first);
        messages[i] =
            (struct mmsghdr){.msg_hdr = {.msg_iov = first, .msg_iovlen = (size_t)(next - first)}};
    }
    for (uint32_t sent = 0; sent < all->count;) {
        int n = sendmmsg(port->fd, messages + sent, all->count - sent, MSG_DONTWAIT);
        if (n <= 0) {
            not_sent(port, all->trains[sent].count, bytes_of(all, &all->trains[sent]));
            n = 1;
        }
        sent += (uint32_t)n;
    }
    all->count = all->end = 0;
}

static uint32_t mtu_of(const struct port *port)
{
    struct ifreq asked;
    memcpy(asked.ifr_name, port->trains->interface, sizeof asked.ifr_name);
    return ioctl(port->fd, SIOCGIFMTU, &asked) ? 0 : (uint32_t)asked.ifr_mtu;
}

/* Adds the frame that was written to the port's room. */
static void add_to_trains(struct port *port, uint32_t bytes, const struct partial *partial)
{
    struct trains *all = port->trains;
    struct train *train = &all->trains[all->count];
    uint32_t number = port->out_frames;
    if (!number)
        all->mtu = mtu_of(port);
    all->at[number] = all->end;
    all->bytes[number] = bytes;
    all->end += (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    if (all->count) {
        const uint8_t *first = port->out_buffer + all->at[train[-1].first];
        if (train_join(train - 1, first, port->room, bytes, partial))
            return;
    }
    train_begin(train, port->room, bytes, partial, all->mtu);
    train->first = number;
    all->count++;
}

/* ---- frames of all kinds ----------------------------------------------------------------------- */

static void publish_frames(struct port *port)
{
    if (port->cable.memory)
        ring_publish(&port->cable.out);
    else /* the worker has ended since */
        not_sent(port, port->out_frames, port->out_bytes);
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
    else if (port->kind == PORT_SUPER_FRAMES)
        send_trains(port);
    else
        send_frames(port);
    port->out_frames = port->out_bytes = 0;
}

void flush_all(struct sw *sw)
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

static uint8_t *room_for_train(struct port *port, uint32_t bytes)
{
    if (port->out_frames == MOST_WAITING || port->trains->end + bytes > TRAINS_ROOM)
        flush_port(port);
    return port->out_buffer + port->trains->end;
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
        port->room = port->trains ? room_for_train(port, bytes) : room_in_buffer(port, bytes);
    return port->room ? port->room : sw->nowhere;
}

/* ---- partial checksums ------------------------------------------------------------------------- */

void rt_complete(struct sw *sw, struct path *path)
{
    partial_complete(&sw->arrived);
    path->partial = 0;
}

/* The checksum stays partial if all bytes that it covers have stayed the same. If the program has
 * written another checksum, that one counts. Otherwise the frame leaves with the checksum that it would
 * have come with. */
void rt_defer(struct sw *sw, const struct path *path, uint32_t place, uint8_t *out,
              uint32_t head_bytes, const uint8_t *rest, uint32_t rest_bytes)
{
    const struct partial *arrived = &sw->arrived;
    uint32_t parsed = (uint32_t)(rest - arrived->frame), bytes = head_bytes + rest_bytes;
    uint32_t at =
        arrived->at < parsed ? (path->field ? place : 0) : head_bytes + (arrived->at - parsed);
    uint32_t before = arrived->at - arrived->start;
    if (!at || at + 2 > bytes || memcmp(out + at, arrived->frame + arrived->at, 2))
        return;
    uint32_t start = at - before;
    uint32_t in_head = parsed > arrived->start ? parsed - arrived->start : 0;
    if (at >= before && rest_bytes == arrived->bytes - parsed
        && bytes - start == arrived->bytes - arrived->start
        && !memcmp(out + start, arrived->frame + arrived->start, in_head)) {
        sw->leaving = (struct partial){out, bytes, start, at};
    } else {
        uint16_t checksum = partial_checksum(arrived);
        out[at] = (uint8_t)(checksum >> 8);
        out[at + 1] = (uint8_t)checksum;
    }
}

/* Takes the partial checksum of the frame that leaves. It is completed where somebody looks at the
 * frame, or where the kernel does not complete it. */
static struct partial take_leaving(struct sw *sw, const struct port *port)
{
    bool is_seen = sw->egress_hook || port->capture_out >= 0;
    if (sw->leaving.at && (is_seen || port->direct || !port->trains))
        partial_complete(&sw->leaving);
    struct partial leaving = sw->leaving;
    sw->leaving.at = 0;
    return leaving;
}

void rt_emit(struct sw *sw, uint32_t number, uint32_t bytes)
{
    struct port *port = find_port(sw, number);
    if (!port || bytes > RT_MAX_FRAME || !port->room) {
        sw->leaving.at = 0;
        if (port && bytes <= RT_MAX_FRAME) /* no worker is connected, or its ring is full */
            port->send_failures++;
        else
            rt_dropped(sw, port ? DROP_TOO_LONG : DROP_NO_SUCH_PORT);
        return;
    }
    struct partial leaving = take_leaving(sw, port);
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
        else if (port->trains)
            add_to_trains(port, bytes, &leaving);
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

/* Returns whether the kernel has left frames, which are then pushed again even if no others follow. */
static bool push_waits(const struct port *port) { return has_xdp(port) && port->xdp->now->waiting; }

bool pushes_wait(const struct sw *sw)
{
    for (uint32_t i = 0; i < sw->xdp_count; i++)
        if (push_waits(&sw->ports[sw->xdp[i]]))
            return true;
    return false;
}

void push_again(struct sw *sw)
{
    for (uint32_t i = 0; i < sw->xdp_count; i++)
        if (push_waits(&sw->ports[sw->xdp[i]]))
            xdp_push(sw->ports[sw->xdp[i]].xdp->now);
}
