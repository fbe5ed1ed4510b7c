/* An I/O round of a worker, as round.c runs it. */

#ifndef INNET_ROUND_H
#define INNET_ROUND_H

#include "fastpath.h"

struct io_round {
    /* Input. */
    int64_t most, batches;   /* most chunks in flight; most batches to receive, up to BATCHES */
    double until;            /* end of the round if nothing comes */
    double idle;             /* a result puts `until` off to so many seconds later, if not 0 */
    double round_trip_began; /* the round ends with the result of a chunk sent since then */
    int64_t steady;          /* 1 if it ends so only after packets were lost or marked */
    double too_soon, reordering, quiet_until; /* see Window in window.py */
    int64_t remaining;                        /* chunks without result */
    int64_t most_queued; /* most packets that wait for the link while chunks with lanes are sent */
    /* Input and output. The switch has owed an answer since `owed_since`, or owes none (infinity). */
    double newest, owed_since;
    int64_t begins; /* input: whether it is the first round of an exchange */
    /* Output. */
    int64_t sent, bare_sent, repetitions, limited;
    int64_t received, bare_received, corrupted, finished, first, lost, marked;
    int64_t unread;            /* whether the caller still has to process the inbox */
    double sent_at, result_at; /* of the last packet, of the last result */
    double now;
    int64_t samples;
    double times[BATCHES]; /* the measured round trips, in seconds */
    int64_t error;
};

struct worker {
    struct window *window;
    struct inbox *inbox;
    const struct outbox *outbox;
    struct vectors *vectors;
    uint64_t *answers; /* for each slot: the bitmap in its chunk's last PENDING, or 0 */
    int64_t *finished; /* room for the position of a chunk of each slot */
};

void innet_io_round(const struct network *network, struct worker *worker, struct io_round *io);

#endif
