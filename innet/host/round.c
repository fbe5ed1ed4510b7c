/* An I/O round of a worker: sends due packets, takes results, and repeats this until there is something
 * to decide. */

#include <errno.h>
#include <math.h>

#include "round.h"

enum { MADE_AT_ONCE = 16 };      /* packets: so few are still in the cache when they are copied */
static const double HELD = 1e-3; /* seconds until the link's queue is looked at again */
static const double EXTENSION = 0.1; /* seconds by which results can put off the end, at the most */

/* Returns how many packets with lanes the host's own link takes without too long a queue. */
static int64_t room(const struct network *network, const struct io_round *io)
{
    if (!network->queued || io->remaining <= io->most_queued)
        return INT64_MAX;
    int64_t queued = network->queued(network->context) / FRAME_MEMORY;
    return queued < io->most_queued ? io->most_queued - queued : 0;
}

/* Sends the packets that have been made. `last` tells whether no more due packets follow. */
static int send_made(const struct network *network, const struct outbox *outbox,
                     const struct sent *sent, int last, struct io_round *io)
{
    int number = 0;
    io->sent += sent->packets[FULL] + sent->packets[BARE];
    io->bare_sent += sent->packets[BARE];
    for (int length = LENGTHS; length-- && !number;)
        if (sent->packets[length])
            number = (last ? network->send : network->put)(
                network->context, outbox->packets[length], (size_t)sent->packets[length],
                outbox->formats[length]->bytes);
    return number;
}

/* Sends what is due. Stores in *held whether the host's own link is too busy for some of it. */
static int send_due(const struct network *network, struct worker *worker, struct io_round *io,
                    int *held)
{
    struct sent sent;
    double now = io->now = network->now(network->context);
    int64_t due = innet_due(worker->window, worker->vectors, io->most, room(network, io), &sent);
    int64_t batch = network->put ? MADE_AT_ONCE : due;
    int number = 0;
    io->limited |= sent.waiting > 0;
    *held = sent.held > 0;
    if (!due)
        return 0;
    io->sent_at = now;
    if (isinf(io->owed_since))
        io->owed_since = now;
    for (int64_t first = 0, end; first < due && !number; first = end) {
        end = first + batch < due ? first + batch : due;
        innet_transmit(worker->window, worker->outbox, worker->vectors, first, end, due, now,
                       &sent);
        number = send_made(network, worker->outbox, &sent, end == due, io);
    }
    io->repetitions += sent.repetitions;
    return number;
}

/* Receives the packets that are there, or that come before the round has to end. Where contributions
 * are held back, waits for no longer than the link's queue lasts. Stores in *woken whether the waker was
 * set during the wait: packets may have come at the same time, and are received before the round ends.
 * Returns whether there is a batch to take. */
static int receive(const struct network *network, struct worker *worker, struct io_round *io,
                   int held, int *woken)
{
    struct inbox *inbox = worker->inbox;
    for (;;) {
        int number = network->receive(network->context, inbox);
        io->now = network->now(network->context);
        io->received += inbox->packets[FULL] + inbox->packets[BARE];
        io->bare_received += inbox->packets[BARE];
        io->corrupted += inbox->corrupted;
        if (!number)
            return 1;
        if (number != EAGAIN) {
            io->error = number;
            return 0;
        }
        double longest = io->until - io->now;
        if (*woken || longest <= 0)
            return 0;
        *woken = network->wait(network->context, held ? fmin(longest, HELD) : longest);
        if (held && !*woken)
            return 1;
    }
}

/* Takes the results of a batch, which put off the round's end, but not beyond `last`. Returns whether the
 * round goes on. */
static int take(struct worker *worker, struct io_round *io, double last)
{
    if (innet_others(worker->window, worker->inbox)) {
        io->unread = 1;
        return 0;
    }
    struct taken taken = {.oldest = INFINITY, .newest = io->newest, .positions = worker->finished};
    innet_take(worker->window, worker->inbox, worker->vectors, io->now, io->quiet_until,
               io->too_soon, io->reordering, &taken);
    io->corrupted += taken.corrupted;
    if (!taken.finished)
        return 1;
    for (int64_t i = 0; i < taken.finished; i++) {
        io->first |= !worker->finished[i];
        worker->answers[worker->finished[i] % worker->window->slots] = 0;
    }
    if (taken.oldest <= io->now) {
        double round_trip = io->now - taken.oldest;
        io->times[io->samples++] = round_trip;
        /* As queues fill, longer round trips become normal. */
        io->reordering = fmax(io->reordering, round_trip);
    }
    io->finished += taken.finished;
    io->lost += taken.lost;
    io->marked += taken.marked;
    io->newest = taken.newest;
    io->result_at = io->now;
    io->owed_since = INFINITY;
    if (io->idle > 0)
        io->until = fmin(fmax(io->until, io->now + io->idle), last);
    int round_over = io->newest >= io->round_trip_began && (io->lost || io->marked || !io->steady);
    return !io->first && io->finished < io->remaining && !round_over;
}

/* Sets the arrays as Window.start does. */
static void start(struct window *window, const struct vectors *vectors)
{
    for (int64_t slot = 0; slot < window->slots; slot++) {
        window->chunk[slot] = slot;
        window->state[slot] = slot < vectors->chunks ? STATE_DUE : STATE_DONE;
        window->attempts[slot] = 0;
        window->suspect[slot] = 0;
    }
}

void innet_io_round(const struct network *network, struct worker *worker, struct io_round *io)
{
    int held = 0, woken = 0;
    double last = io->until + EXTENSION;
    if (io->begins)
        start(worker->window, worker->vectors);
    for (int64_t batch = 0; batch < io->batches && batch < BATCHES; batch++)
        if ((io->error = send_due(network, worker, io, &held))
            || !receive(network, worker, io, held, &woken) || !take(worker, io, last) || woken
            || io->now >= last)
            return;
}
