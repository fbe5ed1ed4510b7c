/* The frames between the server's cores and the client.
 *
 * Everything on the wire is little-endian, and the machine must be, too: float32 payloads are
 * received where they are used, without conversion. */

#ifndef INNET_PBOX_H
#define INNET_PBOX_H

#include "optimizers.h"

#include <stdbool.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian, and so has to be the machine"
#endif

enum { BATCH = 8 }; /* frames in one call */

/* The header of every frame. `step` is the number of updates of the chunk when the sender last saw it. In
 * a HELLO, `step` is the job's number and `chunk` the worker's rank. */
struct header {
    uint32_t magic;
    uint8_t kind, zero[3];
    uint32_t chunk, bytes;
    uint64_t step;
    double rate; /* the learning rate, of a PUSH */
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "as documented");

#endif
