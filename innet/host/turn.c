/* An I/O round ("turn") of a worker: sends due packets, takes results, and repeats this until there is
 * something to decide. */

#include <errno.h>
#include <math.h>

#include "fastpath.h"

enum { BATCHES = 16 };

struct turn {
    /* Input. */
    int64_t most, batches; /* most chunks in flight; most batches to receive, up to BATCHES */
    double until;          /* end of the round if nothing comes */
    double pause;          /* lets packets accumulate while more than `most` chunks remain */
    double round_began;    /* the round ends with the result of a chunk sent since then; */
    int64_t steady;        /* if this is set, only if packets were lost */
    double too_soon, reordering, quiet_until; /* see innet_take */
    int64_t remaining;                        /* chunks without result */
    /* Input and output. The switch has owed an answer since `owed_since`, or owes none (infinity). */
    double newest, owed_since;
    /* Output. */
    int64_t sent, repetitions, limited;
    int64_t received, corrupted, finished, first, lost;
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
    uint32_t *absent;          /* for each slot: the workers missing in its chunk */
    int64_t *finished;         /* room for a chunk of each slot */
    uint8_t *buffer, *packets; /* incoming, outgoing */
    size_t room;               /* in the buffer, for a datagram */
};

static int send_due(const struct network *network, struct worker *worker, struct turn *turn)
{
    struct sent sent;
    double now = turn->now = network->now(network->context);
    innet_transmit(worker->window, worker->outgoing, worker->vectors, turn->most, now,
                   worker->packets, &sent);
    turn->limited |= sent.waiting > 0;
    if (!sent.packets)
        return 0;
    turn->sent += sent.packets;
    turn->repetitions += sent.repetitions;
    turn->sent_at = now;
    if (isinf(turn->owed_since))
        turn->owed_since = now;
    return network->send(network->context, worker->packets, (size_t)sent.packets,
                         worker->outgoing->bytes);
}

/* Receives the packets that are there, or that come before the round has to end. Returns whether the
 * round goes on. */
static int receive(const struct network *network, struct worker *worker, struct turn *turn,
                   struct arrivals *arrivals)
{
    if (turn->pause > 0 && turn->remaining - turn->finished > turn->most)
        network->pause(network->context, turn->pause);
    for (;;) {
        int number = network->receive(network->context, worker->buffer, worker->room,
                                      worker->incoming, arrivals);
        turn->now = network->now(network->context);
        turn->received += arrivals->packets;
        turn->corrupted += arrivals->corrupted;
        if (!number)
            return 1;
        if (number != EAGAIN) {
            turn->error = number;
            return 0;
        }
        if (turn->now >= turn->until || network->wait(network->context, turn->until - turn->now))
            return 0;
    }
}

/* Takes the results of a batch. Returns whether the round goes on. */
static int take(struct worker *worker, struct turn *turn, const struct arrivals *arrivals)
{
    struct taken taken = {.oldest = INFINITY, .newest = turn->newest, .chunks = worker->finished};
    innet_take(worker->window, worker->incoming, worker->vectors, worker->buffer,
               (size_t)arrivals->packets, turn->now, turn->quiet_until, turn->too_soon,
               turn->reordering, &taken);
    if (taken.others) {
        turn->others = arrivals->packets;
        return 0;
    }
    if (!taken.finished)
        return 1;
    for (int64_t i = 0; i < taken.finished; i++) {
        turn->first |= !worker->finished[i];
        worker->absent[worker->finished[i] % worker->window->slots] = 0;
    }
    if (taken.oldest <= turn->now) {
        double round_trip = turn->now - taken.oldest;
        turn->round_trips[turn->samples++] = round_trip;
        /* As queues fill, longer round trips become normal. */
        turn->reordering = fmax(turn->reordering, round_trip);
    }
    turn->finished += taken.finished;
    turn->lost += taken.lost;
    turn->newest = taken.newest;
    turn->result_at = turn->now;
    turn->owed_since = INFINITY;
    int round_over = turn->newest >= turn->round_began && (turn->lost || !turn->steady);
    return !turn->first && turn->finished < turn->remaining && !round_over;
}

void innet_turn(const struct network *network, struct worker *worker, struct turn *turn)
{
    for (int64_t batch = 0; batch < turn->batches && batch < BATCHES; batch++) {
        struct arrivals arrivals = {0};
        if ((turn->error = send_due(network, worker, turn))
            || !receive(network, worker, turn, &arrivals) || !take(worker, turn, &arrivals))
            return;
    }
}
