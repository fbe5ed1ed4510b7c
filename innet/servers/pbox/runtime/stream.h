/* Frames over a non-blocking TCP socket. Payloads are received and sent in place, without copies. The
 * same system call reads the end of one payload and the next header. */

#ifndef INNET_PBOX_STREAM_H
#define INNET_PBOX_STREAM_H

#include "pbox.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* MOVED: there may be more. BLOCKED: wait until the socket is ready. */
enum moved { MOVED, BLOCKED, CLOSED };

/* The receiving side. While `busy`, `now` is the frame whose payload is being received. `next` is the
 * header being received. */
struct inlet {
    struct header now, next;
    uint32_t have; /* bytes of `next` */
    uint32_t left; /* bytes still to come at `into` */
    uint8_t *into;
    bool busy;
};

/* Receives what has arrived of the present payload and of the next header. */
static inline enum moved receive(int socket, struct inlet *in, uint64_t *bytes)
{
    struct iovec parts[2] = {{in->into, in->left},
                             {(uint8_t *)&in->next + in->have, sizeof in->next - in->have}};
    bool body = in->left > 0;
    ssize_t got = readv(socket, parts + !body, 1 + body);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR) ? BLOCKED : CLOSED;
    *bytes += (uint64_t)got;
    uint32_t of_body = (uint64_t)got < in->left ? (uint32_t)got : in->left;
    in->into += of_body;
    in->left -= of_body;
    in->have += (uint32_t)got - of_body;
    return MOVED;
}

struct frame {
    struct header header;
    const void *payload;
};

/* Sends as much of these frames as the kernel takes. `sent` bytes of the first one are already out. Sets
 * `complete` to the number of frames that are now out, and updates `sent` for the next one. */
static inline enum moved send_frames(int socket, const struct frame *frames, uint32_t count,
                                     uint32_t *sent, uint32_t *complete, uint64_t *bytes)
{
    struct iovec parts[2 * BATCH];
    struct msghdr message = {.msg_iov = parts};
    uint32_t skip = *sent;
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct iovec pair[2] = {{(void *)&frames[i].header, sizeof frames[i].header},
                                {(void *)frames[i].payload, frames[i].header.bytes}};
        for (uint32_t j = 0; j < 2; j++) {
            size_t past = skip < pair[j].iov_len ? skip : pair[j].iov_len;
            skip -= (uint32_t)past;
            if (pair[j].iov_len == past)
                continue;
            parts[message.msg_iovlen++] =
                (struct iovec){(uint8_t *)pair[j].iov_base + past, pair[j].iov_len - past};
            total += pair[j].iov_len - past;
        }
    }
    *complete = 0;
    ssize_t gone = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (gone < 0)
        return errno == EAGAIN || errno == EINTR ? BLOCKED : CLOSED;
    *bytes += (uint64_t)gone;
    uint64_t at = *sent + (uint64_t)gone;
    while (*complete < count && at >= sizeof(struct header) + frames[*complete].header.bytes)
        at -= sizeof(struct header) + frames[(*complete)++].header.bytes;
    *sent = (uint32_t)at;
    return (size_t)gone == total ? MOVED : BLOCKED;
}

#endif
