/* Frames that leave. The program writes a frame to the room that rt_room gives it, and emits it. The
 * frames of all ports leave together when the packet loop flushes them. */

#define _GNU_SOURCE
#include "cables.h"
#include "frames.h"

#include <errno.h>
#include <linux/sockios.h>
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

static void publish_frames(struct port *port)
{
    if (!port->cable.memory) /* the worker has ended since */
        not_sent(port, port->out_frames, port->out_bytes);
    else if (ring_publish(&port->cable.out))
        cable_wake(&port->cable);
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

/* Returns whether somebody looks at a port's frames before they leave. */
static bool is_looked_at(const struct sw *sw, const struct port *port)
{
    return sw->egress_hook || port->capture_out >= 0;
}

/* A frame that nobody looks at is written to where the worker reads it. The worker can change this memory
 * at any time. So any other frame is written to the switch's own memory, and copied when it leaves. In a
 * ring, an empty frame would mean that there is no frame. */
static uint8_t *room_in_cable(struct sw *sw, struct port *port, uint32_t bytes)
{
    struct shared_cable *cable = &port->cable;
    cable->place = NULL;
    if (cable->memory && bytes)
        cable->place = ring_reserve(&cable->out, bytes, program.header_bytes);
    return cable->place && is_looked_at(sw, port) ? sw->draft : cable->place;
}

static void put_in_cable(struct port *port, uint32_t bytes)
{
    if (port->room != port->cable.place)
        memcpy(port->cable.place, port->room, bytes);
    ring_commit(&port->cable.out, bytes);
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
        port->room = room_in_cable(sw, port, bytes);
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
            put_in_cable(port, bytes);
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
