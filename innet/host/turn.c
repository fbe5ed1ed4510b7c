// A worker's turn: it sends what is due, takes what comes, and so on, until there is something to decide.

#include <errno.h>
#include <math.h>

#include "fastpath.h"

enum { BATCHES = 16 };

struct turn {
    // What is decided before.
    int64_t most, batches;     // chunks under way; what is received at most, not above BATCHES
    double until;              // when to end if nothing comes
    double pause;              // to let packets come together, while there is more to send than `most`
    double round_began;        // the turn ends with a result of a chunk sent since,
    int64_t steady;            // if that is so, only where packets were lost
    double too_soon, reordering, quiet_until;  // see innet_take
    int64_t remaining;         // chunks without result
    // What is going on.
    double newest, owed_since; // owed_since: since when no answer has come to what was sent, or infinity
    // What has happened.
    int64_t sent, repetitions, limited;
    int64_t received, corrupted, finished, first, lost;
    int64_t others;            // packets in the buffer that are still to be taken
    double sent_at, result_at; // the last
    double now;
    int64_t samples;
    double round_trips[BATCHES];
    int64_t error;
};

struct worker {
    struct window *window;
    const struct format *incoming, *outgoing;
    struct vectors *vectors;
    uint32_t *absent;          // for each slot: whom its chunk lacks
    int64_t *finished;         // room for a chunk of each slot
    uint8_t *buffer, *packets; // that come, that go
    size_t room;               // in the buffer, for a datagram
};

static int send_due(const struct network *network, struct worker *worker, struct turn *turn) {
    struct sent sent;
    double now = turn->now = network->now(network->context);
    innet_transmit(worker->window, worker->outgoing, worker->vectors, turn->most, now,
                   worker->packets, &sent);
    turn->limited |= sent.waiting > 0;
    if (!sent.packets) {
        return 0;
    }
    turn->sent += sent.packets;
    turn->repetitions += sent.repetitions;
    turn->sent_at = now;
    if (isinf(turn->owed_since)) {
        turn->owed_since = now;
    }
    return network->send(network->context, worker->packets, (size_t) sent.packets,
                         worker->outgoing->bytes);
}

// What is there, or comes before the turn has to end. Returns whether the turn goes on.
static int receive(const struct network *network, struct worker *worker, struct turn *turn,
                   struct arrivals *arrivals) {
    if (turn->pause > 0 && turn->remaining - turn->finished > turn->most) {
        network->pause(network->context, turn->pause);
    }
    for (;;) {
        int number = network->receive(network->context, worker->buffer, worker->room,
                                      worker->incoming, arrivals);
        turn->now = network->now(network->context);
        turn->received += arrivals->packets;
        turn->corrupted += arrivals->corrupted;
        if (!number) {
            return 1;
        }
        if (number != EAGAIN) {
            turn->error = number;
            return 0;
        }
        if (turn->now >= turn->until
            || network->wait(network->context, turn->until - turn->now)) {
            return 0;
        }
    }
}

// Returns whether the turn goes on.
static int take(struct worker *worker, struct turn *turn, const struct arrivals *arrivals) {
    struct taken taken = {
        .oldest = INFINITY, .newest = turn->newest, .chunks = worker->finished};
    innet_take(worker->window, worker->incoming, worker->vectors, worker->buffer,
               (size_t) arrivals->packets, turn->now, turn->quiet_until, turn->too_soon,
               turn->reordering, &taken);
    if (taken.others) {
        turn->others = arrivals->packets;
        return 0;
    }
    if (!taken.finished) {
        return 1;
    }
    for (int64_t i = 0; i < taken.finished; i++) {
        turn->first |= !worker->finished[i];
        worker->absent[worker->finished[i] % worker->window->slots] = 0;
    }
    if (taken.oldest <= turn->now) {
        double round_trip = turn->now - taken.oldest;
        turn->round_trips[turn->samples++] = round_trip;
        // As queues fill, what was late before is no longer.
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

void innet_turn(const struct network *network, struct worker *worker, struct turn *turn) {
    for (int64_t batch = 0; batch < turn->batches && batch < BATCHES; batch++) {
        struct arrivals arrivals = {0};
        if ((turn->error = send_due(network, worker, turn))
            || !receive(network, worker, turn, &arrivals) || !take(worker, turn, &arrivals)) {
            return;
        }
    }
}
