/* Frames of a network interface through AF_XDP sockets, one for each of its receive queues.
 *
 * A program of a few instructions hands frames to the sockets before the kernel's network stack sees
 * them. Kernel and switch share memory for frames, in chunks, and four rings of chunks for each socket:
 *
 *   fill, sent:          chunks that the switch gives to the kernel
 *   received, completed: chunks that the kernel gives back
 *
 * xdp.c is also compiled by itself, because a switch opens its ports before it has a program. */

#ifndef INNET_XDP_H
#define INNET_XDP_H

#include <linux/if_xdp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { XDP_CHUNK = 4096, XDP_CHUNKS = 2048, XDP_MOST_QUEUES = 64 };

struct xdp_ring {
    uint32_t *producer, *consumer, *flags;
    void *entries;
    uint32_t place; /* this side's position */
    void *memory;
    size_t bytes;
};

struct xdp_queue {
    int socket;
    uint8_t *chunks; /* XDP_CHUNKS to receive into, and behind them as many to send from */
    struct xdp_ring fill, received, sent, completed;
};

struct xdp {
    int link;       /* as long as it is open, the program is attached */
    uint32_t count; /* of queues; all frames are sent through the first */
    uint32_t free;  /* chunks to send from */
    uint64_t *free_chunks;
    bool waiting; /* the kernel has not taken all frames yet */
    bool down;    /* the interface is down, with frames that have not left */
    bool gone;    /* the interface does not exist any more */
    struct xdp_queue queues[XDP_MOST_QUEUES];
};

/* An interface can be replaced by another one of the same name. Another thread then opens the new
 * interface's sockets, and leaves them in `next` for the packet loop. */
struct xdp_port {
    struct xdp *now;  /* the packet loop's; NULL if there are none */
    struct xdp *next; /* to be taken by the packet loop */
    int bell;         /* the eventfd that tells the packet loop about `next` */
};

struct xdp_port *xdp_create(void);
void xdp_destroy(struct xdp_port *port);
/* Returns NULL, or the reason for which there are no sockets. */
const char *xdp_open(struct xdp_port *port, uint32_t interface, uint32_t queues, bool tags_seen);
bool xdp_take_next(struct xdp_port *port);
uint64_t xdp_lost(const struct xdp_port *port);

/* Returns how many frames have arrived, at most `most`. */
static inline uint32_t xdp_look(const struct xdp_queue *queue, uint32_t most)
{
    uint32_t there =
        __atomic_load_n(queue->received.producer, __ATOMIC_ACQUIRE) - queue->received.place;
    return there < most ? there : most;
}

static inline struct xdp_desc xdp_frame(const struct xdp_queue *queue, uint32_t which)
{
    const struct xdp_desc *frames = queue->received.entries;
    return frames[(queue->received.place + which) % XDP_CHUNKS];
}

void xdp_release(struct xdp_queue *queue, uint32_t count);
uint8_t *xdp_room(struct xdp *xdp, uint32_t bytes);
void xdp_queue(struct xdp *xdp, uint32_t bytes);
void xdp_push(struct xdp *xdp);

#endif
