/* An I/O round of a worker: sends due packets, takes results, and repeats this until there is something
 * to decide. */

#include <errno.h>
#include <math.h>

#include "fastpath.h"

struct io_round {
    /* Input. */
    int64_t most, batches;   /* most chunks in flight; most batches to receive, up to BATCHES */
    double until;            /* end of the round if nothing comes */
    double pause;            /* lets packets accumulate while more than `most` chunks remain */
    double round_trip_began; /* the round ends with the result of a chunk sent since then; */
    int64_t steady;          /* if this is set, only if packets were lost or marked */
    double too_soon, reordering, quiet_until; /* see innet_take */
    int64_t remaining;                        /* chunks without result */
    /* Input and output. The switch has owed an answer since `owed_since`, or owes none (infinity). */
    double newest, owed_since;
    /* Output. */
    int64_t sent, repetitions, limited;
    int64_t received, corrupted, finished, first, lost, marked;
    int64_t others;            /* packets in the buffer that the caller still has to process */
    double sent_at, result_at; /* of the last packet, of the last result */
    double now;
    int64_t samples;
    double round_trips[BATCHES];
    int64_t error;
};

struct worker {
    struct window *window;
    const struct format *incoming, *outgoing;
    struct vectors *vectors;
    uint32_t *answers;         /* for each slot: the bitmap in its chunk's last PENDING, or 0 */
    int64_t *finished;         /* room for a chunk of each slot */
    uint8_t *buffer, *packets; /* incoming, outgoing */
    size_t room;               /* in the buffer, for a datagram */
};

static int send_due(const struct network *network, struct worker *worker, struct io_round *io)
{
    struct sent sent;
    double now = io->now = network->now(network->context);
    innet_transmit(worker->window, worker->outgoing, worker->vectors, io->most, now,
                   worker->packets, &sent);
    io->limited |= sent.waiting > 0;
    if (!sent.packets)
        return 0;
    io->sent += sent.packets;
    io->repetitions += sent.repetitions;
    io->sent_at = now;
    if (isinf(io->owed_since))
        io->owed_since = now;
    return network->send(network->context, worker->packets, (size_t)sent.packets,
                         worker->outgoing->bytes);
}

/* Receives the packets that are there, or that come before the round has to end. Returns whether the
 * round goes on. */
static int receive(const struct network *network, struct worker *worker, struct io_round *io,
                   struct arrivals *arrivals)
{
    if (io->pause > 0 && io->remaining - io->finished > io->most)
        network->pause(network->context, io->pause);
    for (;;) {
        int number = network->receive(network->context, worker->buffer, worker->room,
                                      worker->incoming, arrivals);
        io->now = network->now(network->context);
        io->received += arrivals->packets;
        io->corrupted += arrivals->corrupted;
        if (!number)
            return 1;
        if (number != EAGAIN) {
            io->error = number;
            return 0;
        }
        if (io->now >= io->until || network->wait(network->context, io->until - io->now))
            return 0;
    }
}

/* Takes the results of a batch. Returns whether the round goes on. */
static int take(struct worker *worker, struct io_round *io, const struct arrivals *arrivals)
{
    struct taken taken = {.oldest = INFINITY, .newest = io->newest, .chunks = worker->finished};
    innet_take(worker->window, worker->incoming, worker->vectors, worker->buffer,
               (size_t)arrivals->packets, io->now, io->quiet_until, io->too_soon, io->reordering,
               &taken);
    if (taken.others) {
        io->others = arrivals->packets;
        return 0;
    }
    if (!taken.finished)
        return 1;
    for (int64_t i = 0; i < taken.finished; i++) {
        io->first |= !worker->finished[i];
        worker->answers[worker->finished[i] % worker->window->slots] = 0;
    }
    if (taken.oldest <= io->now) {
        double round_trip = io->now - taken.oldest;
        io->round_trips[io->samples++] = round_trip;
        /* As queues fill, longer round trips become normal. */
        io->reordering = fmax(io->reordering, round_trip);
    }
    io->finished += taken.finished;
    io->lost += taken.lost;
    io->marked += taken.marked;
    io->newest = taken.newest;
    io->result_at = io->now;
    io->owed_since = INFINITY;
    int round_over = io->newest >= io->round_trip_began && (io->lost || io->marked || !io->steady);
    return !io->first && io->finished < io->remaining && !round_over;
}

void innet_io_round(const struct network *network, struct worker *worker, struct io_round *io)
{
    for (int64_t batch = 0; batch < io->batches && batch < BATCHES; batch++) {
        struct arrivals arrivals = {0};
        if ((io->error = send_due(network, worker, io)) || !receive(network, worker, io, &arrivals)
            || !take(worker, io, &arrivals))
            return;
    }
}
