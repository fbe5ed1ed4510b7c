/* The connection to the switch: a connected UDP socket, with many packets in a call. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "network.h"

int innet_udp_wait(void *context, double seconds)
{
    const struct udp_socket *udp = context;
    struct pollfd ends[] = {{udp->waker, POLLIN, 0}, {udp->descriptor, POLLIN, 0}};
    return innet_wait_for(ends, 2, seconds);
}

/* ---- send ------------------------------------------------------------------------------------ */

/* Returns whether an error means a wrong use of the socket. Any other means lost packets, as on a wire:
 * nobody listens at the other end, there is no room, or this machine's kernel refuses packets for a
 * time. */
static int is_misuse(int number)
{
    for (size_t i = 0; i < sizeof MISUSES / sizeof *MISUSES; i++)
        if ((uint64_t)number == MISUSES[i])
            return 1;
    return 0;
}

int64_t innet_udp_queued(void *context)
{
    const struct udp_socket *udp = context;
    int bytes;
    return ioctl(udp->descriptor, SIOCOUTQ, &bytes) ? 0 : bytes;
}

enum { OPTION = CMSG_SPACE(sizeof(int)) };

static void add_option(struct msghdr *message, int level, int type, const void *value, size_t bytes)
{
    struct cmsghdr *option = (void *)((char *)message->msg_control + message->msg_controllen);
    *option = (struct cmsghdr){.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(bytes)};
    memcpy(CMSG_DATA(option), value, bytes);
    message->msg_controllen += OPTION;
}

static int send_one(int descriptor, const uint8_t *packets, size_t bytes, uint16_t segment,
                    int congested)
{
    _Alignas(struct cmsghdr) char control[2 * OPTION] = {0};
    struct iovec vector = {(void *)packets, bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control};
    if (segment)
        add_option(&message, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
    if (congested)
        add_option(&message, IPPROTO_IP, IP_TOS, &(int){ECN_CONGESTED}, sizeof(int));
    return sendmsg(descriptor, &message, 0) < 0 ? errno : 0;
}

int innet_udp_send(void *context, const uint8_t *packets, size_t count, size_t bytes)
{
    struct udp_socket *udp = context;
    /* This host is a hop, too, so it marks packets while its own queue is long. */
    int congested = innet_udp_queued(context) >= LONG_QUEUE_BYTES;
    size_t most = MOST_SENT_BYTES / bytes < MOST_SEGMENTS ? MOST_SENT_BYTES / bytes : MOST_SEGMENTS;
    while (count) {
        size_t some = udp->segmenting && most > 1 ? (count < most ? count : most) : 1;
        int number = send_one(udp->descriptor, packets, some * bytes,
                              some > 1 ? (uint16_t)bytes : 0, congested);
        if (some > 1 && (number == EINVAL || number == EIO || number == EOPNOTSUPP)) {
            number = send_one(udp->descriptor, packets, bytes, 0, congested);
            if (!number) { /* the kernel or the device cannot cut: send one by one */
                udp->segmenting = 0;
                some = 1;
            }
        }
        if (is_misuse(number))
            return number;
        udp->refused = number == EAGAIN || number == ECONNREFUSED ? 0 : number;
        packets += some * bytes;
        count -= some;
    }
    return 0;
}

/* ---- receive --------------------------------------------------------------------------------- */

/* The kernel's information about a datagram. */
struct about {
    size_t segment;
    int congested;
};

static struct about about(struct msghdr *message, size_t bytes)
{
    struct about found = {.segment = bytes};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
            found.segment = segment > 0 ? (size_t)segment : bytes;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
            found.congested = *CMSG_DATA(c) % 4 == ECN_CONGESTED;
        }
    }
    return found;
}

/* Receives up to MESSAGES datagrams, or one where the kernel joins them: it has dozens of packets, which
 * then stay where they are, and in the cache until they are taken. Keeps the intact packets, in order. */
int innet_udp_receive(void *context, struct inbox *inbox)
{
    struct udp_socket *udp = context;
    unsigned most = udp->joined ? 1 : MESSAGES;
    struct mmsghdr messages[MESSAGES];
    struct iovec vectors[MESSAGES];
    _Alignas(struct cmsghdr) char control[MESSAGES][CMSG_SPACE(sizeof(int)) + CMSG_SPACE(1)];
    for (size_t i = 0; i < most; i++) {
        vectors[i] = (struct iovec){inbox->buffers[FULL] + i * inbox->room, inbox->room};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i],
                                              .msg_iovlen = 1,
                                              .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]};
    }
    innet_clear(inbox);
    int count = recvmmsg(udp->descriptor, messages, most, MSG_DONTWAIT, NULL);
    if (count < 0)
        return is_misuse(errno) ? errno : EAGAIN;
    for (int i = 0; i < count; i++) {
        size_t bytes = messages[i].msg_len, size;
        struct about message = about(&messages[i].msg_hdr, bytes);
        const uint8_t *packet = vectors[i].iov_base;
        udp->joined = bytes > message.segment;
        for (; bytes; bytes -= size, packet += size) {
            size = bytes < message.segment ? bytes : message.segment; /* the last may be shorter */
            uint8_t *kept = innet_keep(inbox, packet, size);
            if (kept && message.congested) /* the low byte of the flags */
                kept[inbox->formats[FULL]->front + AT_FLAGS + 1] |= FLAG_MARKED;
        }
    }
    return 0;
}
