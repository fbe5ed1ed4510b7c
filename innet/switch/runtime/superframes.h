/* Super-frames: many frames of one flow that cross the kernel as one.
 *
 * A packet socket with PACKET_VNET_HDR hands over frames as the kernel has them (struct
 * virtio_net_hdr): uncut, and with a checksum that is still to be computed. Here such a frame is cut,
 * as the kernel's GSO cuts it, and frames that leave one after the other are joined, as its GRO joins
 * them. Only Ethernet, IP, UDP and TCP are known here, and no program. */

#ifndef INNET_SUPERFRAMES_H
#define INNET_SUPERFRAMES_H

#include "constants.h"

#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_HEAD = 192 }; /* the most bytes in front of a segment's payload */

/* A frame whose transport checksum is still to be computed, over all bytes from `start` on. The
 * checksum's place `at` holds the sum of the pseudo-header. `at` is 0 if there is no such checksum. */
struct partial {
    uint8_t *frame;
    uint32_t bytes, start, at;
};

/* Computes the checksum that a partial one stands for. */
uint16_t partial_checksum(const struct partial *partial);
/* Writes it to its place. The frame's checksum is then complete. */
void partial_complete(struct partial *partial);

/* Where the headers of an IP packet begin in a frame. `head` is the first byte of the payload. */
struct layout {
    uint32_t network, transport, head;
    uint8_t version, protocol;
};

/* ---- cutting ----------------------------------------------------------------------------------- */

struct cut {
    uint8_t *frame;
    uint32_t bytes, size, next; /* of the super-frame, of a segment's payload; the next segment */
    struct layout layout;
    uint32_t header_sum, pseudo_sum, sequence; /* of the first segment, the sums without lengths */
    uint16_t id;
    uint8_t head[MOST_HEAD];
};

/* Prepares the cutting of a super-frame. Returns false if its description does not fit the frame. */
bool cut_begin(struct cut *cut, uint8_t *frame, uint32_t bytes, const struct virtio_net_hdr *about,
               uint32_t restored);
/* Makes the next segment, in place: it writes headers in front of the segment's payload, over the
 * segment before, which must not be needed any more. Returns false behind the last one. */
bool cut_next(struct cut *cut, struct partial *segment);

/* Copies the beginning of a later segment to `room`, and returns its bytes, or 0 behind the last one. */
uint32_t cut_peek(const struct cut *cut, uint32_t ahead, uint8_t *room, uint32_t most);

/* Sets the frame's partial checksum, if it has one. Returns false if the description does not fit. */
bool describe_partial(struct partial *frame, const struct virtio_net_hdr *about, uint32_t restored);

/* ---- joining ----------------------------------------------------------------------------------- */

/* Frames that leave together, as one super-frame if there are several. */
struct train {
    uint32_t first, count; /* of the frames that wait in the port */
    uint32_t bytes, size;  /* of the super-frame, and of a whole segment's payload */
    struct layout layout;
    struct partial partial; /* of the first frame */
    uint8_t last_flags;     /* the flags that only the last segment of TCP may have */
    bool is_open;           /* another frame may join */
};

/* Makes a train of one frame. Frames that do not fit a link with this MTU
 * stay alone. */
void train_begin(struct train *train, const uint8_t *frame, uint32_t bytes,
                 const struct partial *partial, uint32_t mtu);
/* Adds the next frame of the port, if it continues the train that begins with `first`. */
bool train_join(struct train *train, const uint8_t *first, const uint8_t *frame, uint32_t bytes,
                const struct partial *partial);
/* Completes the headers of the first frame, and describes the train for the kernel. */
void train_describe(const struct train *train, uint8_t *frame, struct virtio_net_hdr *about);

#endif
