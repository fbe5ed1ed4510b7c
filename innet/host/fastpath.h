/* The common declarations of a worker's compiled code.
 *
 * innet/host/fastpath.py describes the functions, and names the numpy code with which they agree, bit
 * for bit. It also passes the constants. */

#ifndef INNET_FASTPATH_H
#define INNET_FASTPATH_H

#include "constants.h"
#include "words.h"

/* The properties of every packet of a link that has one length. */
struct format {
    size_t bytes, front, lanes; /* bytes of a packet, bytes before its header, lanes after it */
    size_t words;               /* covered by the check */
    const uint64_t *weights;
    uint64_t base;                       /* the sender's address's part in the check's sum */
    size_t checked, places[2], sizes[2]; /* bytes before the header that identify the sender */
    uint8_t sender[8];
};

/* The arrays of a Window (window.py), with an element for each slot. Its chunks are positions in the
 * order of the exchange. */
struct window {
    int64_t slots, first_slot;
    int64_t *sequence, *chunk, *attempts;
    double *sent_at;
    int8_t *state; /* of enum slot_state */
    uint8_t *suspect;
    int64_t *scratch;
    uint16_t job, term;
    /* Results may lack lanes that are wanted: they go out before all workers have said so. */
    uint8_t has_quorum;
};

/* The vector of an exchange and its result, with an element for each chunk, and a row of `lanes` for each
 * chunk whose lanes are sent or received. */
struct vectors {
    int64_t chunks, own_first, sums_first; /* the chunks of the first rows */
    size_t lanes;
    const uint32_t *own;       /* NULL if scaling makes them */
    const uint16_t *own_flags; /* these tell which lanes are sent and received */
    uint32_t *sums;            /* NULL if only the scaling takes the lanes of results */
    uint16_t *flags;
    uint16_t *counts;
    uint64_t *members;
    struct scaling *scaling; /* or NULL */
    const int32_t *order;    /* the chunk that goes at each position, or NULL if they go in order */
};

/* Packets come in two lengths: bare headers, and with lanes. */
enum { BARE, FULL, LENGTHS };

/* The packets that have arrived, in a buffer for each length. */
struct inbox {
    const struct format *formats[LENGTHS];
    uint8_t *buffers[LENGTHS]; /* each as large as MESSAGES times `room` */
    size_t room;               /* for a datagram */
    int64_t packets[LENGTHS], corrupted;
};

struct outbox {
    const struct format *formats[LENGTHS];
    uint8_t *packets[LENGTHS]; /* one for each slot */
};

struct taken {
    int64_t finished, lost, marked, corrupted;
    double oldest, newest; /* sending times of chunks whose results allow a measurement */
    int64_t *positions;    /* of the finished chunks */
};

struct sent { int64_t packets[LENGTHS], repetitions, waiting, held; };

/* Functions that reach the switch, and tell the time. On failure they return an errno. */
struct network {
    void *context;
    double (*now)(void *);               /* seconds */
    int (*wait)(void *, double seconds); /* for packets; 1 if the waker was set */
    int (*send)(void *, const uint8_t *packets, size_t count, size_t bytes);
    int (*receive)(void *, struct inbox *inbox); /* EAGAIN if nothing is there */
    int64_t (*queued)(void *); /* memory of the packets that wait for this host's link; or NULL */
    /* NULL, or like `send`, for packets that others follow at once. With it, a few are made at a time. */
    int (*put)(void *, const uint8_t *packets, size_t count, size_t bytes);
};

/* A network's context if the network is a UDP socket. */
struct udp_socket {
    int descriptor, waker; /* an eventfd, or -1 */
    int segmenting;        /* whether the kernel cuts one buffer into packets */
    int joined;            /* whether it had joined packets in the last datagram */
    int refused;           /* the errno with which this kernel refused the last packets, or 0 */
};

int64_t innet_others(const struct window *window, const struct inbox *inbox);
void innet_take(struct window *window, const struct inbox *inbox, struct vectors *vectors,
                double now, double quiet_until, double too_soon, double reordering,
                struct taken *taken);
/* Returns how many chunks are to be sent now, at most `most_full` of them with lanes. They are in the
 * window's scratch, the lowest first. */
int64_t innet_due(struct window *window, const struct vectors *vectors, int64_t most,
                  int64_t most_full, struct sent *sent);
/* Makes the packets of these `count` chunks from number `first` to `end`. */
void innet_transmit(struct window *window, const struct outbox *outbox,
                    const struct vectors *vectors, int64_t first, int64_t end, int64_t count,
                    double now, struct sent *sent);

#endif
