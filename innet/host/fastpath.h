/* The common declarations of a worker's compiled code.
 *
 * innet/host/fastpath.py describes the functions, and names the numpy code with which they agree, bit
 * for bit. It also passes the constants. */

#ifndef INNET_FASTPATH_H
#define INNET_FASTPATH_H

#include "constants.h"
#include "words.h"

/* The properties of every packet of a link. */
struct format {
    size_t bytes, front, lanes; /* bytes of a packet, bytes before its header, lanes after it */
    size_t words;               /* covered by the check */
    const uint64_t *weights;
    uint64_t base;                       /* the sender's address's part in the check's sum */
    size_t checked, places[2], sizes[2]; /* bytes before the header that identify the sender */
    uint8_t sender[8];
};

/* The arrays of a Window (window.py), with an element for each slot. */
struct window {
    int64_t slots, first_slot;
    int64_t *sequence, *chunk, *attempts;
    double *sent_at;
    int8_t *state; /* of enum slot_state */
    uint8_t *suspect;
    int64_t *scratch;
    uint16_t job, term;
};

/* Converts the floats of an exchange: to integers, a row at a time as it is sent, and the sums back to
 * floats, as they arrive. */
struct scaling {
    int64_t lanes;
    const float *values, *up; /* rows, and their factors */
    int32_t *kept;            /* NULL, or the integers of rows whose result is in their place */
    uint8_t *is_kept;
    const uint8_t *fit; /* 0 for a row that is sent as zeros */
    const float *down;  /* the sums' factors, applied after */
    int64_t mean;       /* division by the number of contributions, if it is a mean */
    float *results;
    uint8_t *done; /* 1 for rows of `results` that are made */
};

/* The vector of an exchange and its result, with an element, or a row of `lanes`, for each chunk. */
struct vectors {
    int64_t chunks;
    const uint32_t *own; /* NULL if they are made by scaling */
    const uint16_t *own_flags;
    uint32_t *sums;
    uint16_t *flags;
    uint16_t *counts;
    uint32_t *members;
    struct scaling *scaling; /* or NULL */
};

struct arrivals { int64_t packets, corrupted; };

struct taken {
    int64_t others; /* replies other than results; if there are any, nothing is done */
    int64_t finished, lost, marked;
    double oldest, newest; /* sending times of chunks whose results allow a measurement */
    int64_t *chunks;       /* the finished ones */
};

struct sent { int64_t packets, repetitions, waiting; };

/* Functions that reach the switch, and tell the time. On failure they return an errno. */
struct network {
    void *context;
    double (*now)(void *); /* seconds */
    void (*pause)(void *, double seconds);
    int (*wait)(void *, double seconds); /* for packets; 1 if the waker was set */
    int (*send)(void *, const uint8_t *packets, size_t count, size_t bytes);
    int (*receive)(void *, uint8_t *buffer, size_t room, const struct format *format,
                   struct arrivals *arrivals); /* EAGAIN if nothing is there */
};

/* A network's context if the network is a UDP socket. */
struct udp_socket {
    int descriptor, waker; /* an eventfd, or -1 */
    int segmenting;        /* whether the kernel cuts one buffer into packets */
};

void innet_take(struct window *window, const struct format *format, struct vectors *vectors,
                const uint8_t *packets, size_t count, double now, double quiet_until,
                double too_soon, double reordering, struct taken *taken);
void innet_transmit(struct window *window, const struct format *format,
                    const struct vectors *vectors, int64_t most, double now, uint8_t *packets,
                    struct sent *sent);

#endif
