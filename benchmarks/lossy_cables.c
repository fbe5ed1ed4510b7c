/* A stretch of cables made of UDP, which loses packets at random and does nothing else. */

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "constants.h"
#include "losses.h"

enum { MOST_BYTES = 1 << 16, TURNS = 16 };

/* A direction of a cable, between two connected sockets. */
struct direction {
    int32_t from, to;
    struct losses losses;
};

/* Returns the bytes of each of the datagrams that were joined into one message. */
static size_t packet_bytes(struct msghdr *message, size_t bytes)
{
    for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each)) {
        if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != UDP_GRO)
            continue;
        int segment;
        memcpy(&segment, CMSG_DATA(each), sizeof segment);
        return (size_t)segment;
    }
    return bytes;
}

/* Sends a buffer, cut into datagrams of this many bytes; the last may be shorter. A datagram for
 * which the other socket has no room is lost, as on a wire. */
static void send_packets(int to, uint8_t *buffer, size_t bytes, size_t each)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec vector = {buffer, bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (bytes > each) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = UDP_SEGMENT;
        header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t segment = (uint16_t)each;
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
    }
    /* The first call may only report that nobody received an earlier packet. */
    if (sendmsg(to, &message, MSG_DONTWAIT) < 0 && errno == ECONNREFUSED)
        sendmsg(to, &message, MSG_DONTWAIT);
}

/* Carries some packets that have come. */
static void carry(struct direction *direction)
{
    static uint8_t buffer[MOST_BYTES];
    for (int turn = 0; turn < TURNS; turn++) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        struct iovec vector = {buffer, sizeof buffer};
        struct msghdr message = {.msg_iov = &vector,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t bytes = recvmsg(direction->from, &message, MSG_DONTWAIT);
        if (bytes < 0 && errno == ECONNREFUSED)
            continue;
        if (bytes <= 0)
            return;
        size_t each = packet_bytes(&message, (size_t)bytes), whole = (size_t)bytes / each;
        size_t rest = (size_t)bytes % each;
        size_t kept = (size_t)keep_rest(&direction->losses, buffer, (int64_t)whole, each) * each;
        if (rest && !is_lost(&direction->losses)) {
            memmove(buffer + kept, buffer + whole * each, rest);
            kept += rest;
        }
        if (kept)
            send_packets(direction->to, buffer, kept, each);
    }
}

/* Carries packets until the file `end` is readable. `files` has room for all directions, and one more. */
void carry_all(struct direction *directions, uint32_t count, int32_t end, struct pollfd *files)
{
    for (uint32_t i = 0; i < count; i++) {
        files[i] = (struct pollfd){directions[i].from, POLLIN, 0};
        directions[i].losses.until = draw_gap(&directions[i].losses);
    }
    files[count] = (struct pollfd){end, POLLIN, 0};
    while (poll(files, count + 1, -1) >= 0 && !files[count].revents)
        for (uint32_t i = 0; i < count; i++)
            if (files[i].revents)
                carry(&directions[i]);
}
