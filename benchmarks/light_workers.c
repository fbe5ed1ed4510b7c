/* Many workers in one thread. Each does the I/O rounds of a worker of innet, without ever waiting, and all
 * take turns. Every result is compared as soon as it has arrived. Links lose packets at random. */

#include <errno.h>
#include <math.h>
#include <time.h>

#include "losses.h"
#include "round.h"

/* The wait of a slot's chunk for its result. */
struct wait {
    uint32_t sequence; /* of the chunk that waits; any other has not waited yet */
    int32_t heard;     /* how often the switches have said that contributions are missing */
    double heard_at;
    double ask_at; /* the time of the next repetition, or 0 */
};

struct member {
    struct network network;
    struct worker *worker;
    struct wait *waits;     /* by slot */
    int64_t remaining, due; /* whether packets may be due */
    double newest, quiet_until;
    double look_at; /* the time when chunks without result are looked at again */
};

struct swarm {
    struct member *members;
    int64_t count;
    const uint32_t *wanted;        /* the right rows */
    int64_t contributions;         /* in a right result */
    int64_t listeners;             /* the most workers below that hear an answer from above */
    double usual, slowest, spread; /* seconds: a round trip, the longest wait, see `postponed` */
    struct losses losses;
    int64_t stop; /* set by another thread */
    /* Output. */
    int64_t unfinished, sent, repetitions, received, corrupted, results, wrong, pending, stale;
    int64_t failed; /* an errno */
    /* Round trips of this run, or 0: the shortest, and the longest of a repetition. The longest
     * counts, because other workers repeat too until the slowest switch has answered. */
    double shortest, answered;
};

enum { MOST_DOUBLINGS = 3, SILENT = 2 };

static const struct timespec IDLE = {0, 200000};

/* ---- losses ---------------------------------------------------------------------------------- */

/* A link that loses packets. `arrived` tells that the packets that are left are already in the
 * inbox. */
struct lossy {
    const struct network *below;
    struct losses *losses;
    int arrived;
};

static double lossy_now(void *context)
{
    const struct lossy *link = context;
    return link->below->now(link->below->context);
}

static int lossy_send(void *context, const uint8_t *packets, size_t count, size_t bytes)
{
    const struct lossy *link = context;
    const struct network *below = link->below;
    size_t begin = 0;
    int number = 0;
    for (size_t i = 0; i <= count && !number; i++) {
        if (i < count && !is_lost(link->losses))
            continue;
        if (i > begin)
            number = below->send(below->context, packets + begin * bytes, i - begin, bytes);
        begin = i + 1;
    }
    return number;
}

static int lossy_receive(void *context, struct inbox *inbox)
{
    struct lossy *link = context;
    int arrived = link->arrived;
    link->arrived = 0;
    if (arrived)
        return 0;
    int number = link->below->receive(link->below->context, inbox);
    for (int length = 0; length < LENGTHS; length++)
        inbox->packets[length] = keep_rest(link->losses, inbox->buffers[length],
                                           inbox->packets[length], inbox->formats[length]->bytes);
    return number;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Compares the results of a round. */
static void compare(struct swarm *swarm, const struct worker *worker, int64_t finished)
{
    const struct vectors *vectors = worker->vectors;
    size_t lanes = vectors->lanes;
    for (int64_t i = 0; i < finished; i++) {
        int64_t chunk = worker->finished[i];
        size_t at = (size_t)chunk * lanes;
        swarm->wrong += memcmp(vectors->sums + at, swarm->wanted + at, lanes * WORD_BYTES) != 0
                        || vectors->flags[chunk] || vectors->counts[chunk] != swarm->contributions;
    }
    swarm->results += finished;
}

/* Returns the wait of a slot's present chunk. */
static struct wait *wait_of(const struct member *member, int64_t slot)
{
    struct wait *wait = &member->waits[slot];
    uint32_t sequence = (uint32_t)member->worker->window->sequence[slot];
    if (wait->sequence != sequence)
        *wait = (struct wait){.sequence = sequence};
    return wait;
}

/* Notes that the switch has a contribution, and that others are missing; see Window.had. A planned
 * repetition is not needed: its answer would be the same. */
static void note_pending(struct swarm *swarm, struct member *member, const uint8_t *header,
                         double now)
{
    struct window *window = member->worker->window;
    int64_t slot = half_at(header + AT_SLOT) - window->first_slot;
    if (slot < 0 || slot >= window->slots || !window->attempts[slot]
        || window->sequence[slot] != word_at(header + AT_SEQUENCE))
        return;
    struct wait *wait = wait_of(member, slot);
    if (window->state[slot] == STATE_FLYING && window->attempts[slot] > 1) {
        /* If an answer was lost, this is the answer to another worker, much later. */
        double answered = fmin(now - window->sent_at[slot], 2 * swarm->usual);
        swarm->answered = fmax(swarm->answered, answered);
    }
    window->state[slot] = STATE_HAD;
    window->suspect[slot] = 0;
    wait->heard +=
        now > wait->heard_at + swarm->spread; /* answers to those who ask together count once */
    wait->heard_at = now;
    wait->ask_at = 0;
    member->quiet_until = now;
}

/* Takes packets of one length that are not results. */
static void take_answers(struct swarm *swarm, struct member *member, const uint8_t *header,
                         const struct format *format, int64_t count, double now)
{
    const struct window *window = member->worker->window;
    for (int64_t i = 0; i < count; i++, header += format->bytes) {
        if (half_at(header + AT_JOB) != window->job || half_at(header + AT_TERM) != window->term)
            continue;
        if (upper_nibble(header + AT_KIND) == KIND_PENDING) {
            swarm->pending++;
            note_pending(swarm, member, header, now);
        }
        swarm->stale += upper_nibble(header + AT_KIND) == KIND_STALE;
    }
}

/* Takes a batch with replies other than results. */
static void take_others(struct swarm *swarm, struct member *member, struct io_round *io)
{
    struct worker *worker = member->worker;
    const struct inbox *inbox = worker->inbox;
    for (int length = 0; length < LENGTHS; length++) {
        const struct format *format = inbox->formats[length];
        take_answers(swarm, member, inbox->buffers[length] + format->front, format,
                     inbox->packets[length], io->now);
    }
    struct taken taken = {.oldest = INFINITY, .newest = io->newest, .positions = worker->finished};
    innet_take(worker->window, inbox, worker->vectors, io->now, member->quiet_until, io->too_soon,
               io->reordering, &taken);
    swarm->corrupted += taken.corrupted;
    io->finished = taken.finished;
    io->newest = taken.newest;
}

/* ---- repetitions ----------------------------------------------------------------------------- */

static double backed_off(double timeout, int64_t doublings, double longest)
{
    return fmin(ldexp(timeout, (int)(doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS)),
                longest);
}

/* Returns a random time within `spread` seconds from now, late rather than soon.
 *
 * If a switch below others is asked again, it asks its parent, and the answer comes to all workers below. So
 * a few should ask, and the others hear the answer first. An exponential distribution makes the number of
 * those who ask nearly independent of the number of those who listen (RFC 4654, 2.5.1). */
static double postponed(struct swarm *swarm, double now)
{
    double share = 1 + log1p(-draw(&swarm->losses)) / log(fmax(2, (double)swarm->listeners));
    return now + swarm->spread * fmax(0, share);
}

/* Returns how long a chunk waits before a time to send it again is drawn. A worker that has heard
 * that contributions of others are missing lets those others repeat first. Each wait is twice as
 * long as the one before. */
static double patience(const struct swarm *swarm, const struct wait *wait, int64_t attempts)
{
    int64_t doublings = attempts - 1;
    if (!wait->heard)
        return backed_off(swarm->usual, doublings, swarm->slowest);
    return backed_off(swarm->spread, doublings + wait->heard - 1, swarm->slowest);
}

/* Makes chunks due whose time to be sent again has come. A chunk gets such a time when a chunk that
 * was sent after its wait has a result, as in Window.lose. Otherwise it gets one after `SILENT`
 * waits. Returns when to look again. */
static double repeat(struct swarm *swarm, struct member *member, double now)
{
    struct window *window = member->worker->window;
    double next = INFINITY;
    for (int64_t slot = 0; slot < window->slots; slot++) {
        if (window->state[slot] != STATE_FLYING && window->state[slot] != STATE_HAD)
            continue;
        struct wait *wait = wait_of(member, slot);
        double since = fmax(window->sent_at[slot], wait->heard_at);
        double least = patience(swarm, wait, window->attempts[slot]), most = since + SILENT * least;
        if (!wait->ask_at && (since + least < member->newest || most < now))
            wait->ask_at = postponed(swarm, now);
        if (wait->ask_at <= now && wait->ask_at > 0) {
            window->suspect[slot] = window->state[slot] == STATE_FLYING;
            window->state[slot] = STATE_DUE;
            wait->ask_at = 0;
            member->due = 1;
        } else {
            next = fmin(next, wait->ask_at > 0 ? wait->ask_at : most);
        }
    }
    return next;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Runs an I/O round of a worker that has something to do. Returns how many packets it has received. */
static int64_t serve(struct swarm *swarm, struct member *member)
{
    struct worker *worker = member->worker;
    struct lossy link = {&member->network, &swarm->losses, 0};
    link.arrived = !lossy_receive(&link, worker->inbox);
    if (!link.arrived && !member->due && lossy_now(&link) < member->look_at)
        return 0;
    struct network network = {
        .context = &link, .now = lossy_now, .send = lossy_send, .receive = lossy_receive};
    struct io_round io = {.most = worker->window->slots,
                          .batches = 1,
                          .round_trip_began = INFINITY,
                          .too_soon = swarm->usual / 2,
                          .reordering = INFINITY, /* `repeat` decides */
                          .quiet_until = member->quiet_until,
                          .remaining = member->remaining,
                          .newest = member->newest,
                          .owed_since = INFINITY};
    innet_io_round(&network, worker, &io);
    swarm->failed = io.error ? io.error : swarm->failed;
    swarm->sent += io.sent;
    swarm->repetitions += io.repetitions;
    swarm->received += io.received;
    swarm->corrupted += io.corrupted;
    if (io.samples) {
        double round_trip = io.times[0];
        swarm->shortest = swarm->shortest ? fmin(swarm->shortest, round_trip) : round_trip;
    }
    if (io.unread)
        take_others(swarm, member, &io);
    compare(swarm, worker, io.finished);
    member->due = io.finished > 0;
    member->newest = io.newest;
    member->remaining -= io.finished;
    swarm->unfinished -= io.finished && !member->remaining;
    member->look_at = repeat(swarm, member, io.now);
    return io.received;
}

/* Lets all workers take turns for so many seconds, or until all have all results. */
void innet_swarm_run(struct swarm *swarm, double seconds)
{
    const struct network *clock = &swarm->members->network;
    double until = clock->now(clock->context) + seconds;
    swarm->shortest = swarm->answered = 0;
    while (swarm->unfinished && !swarm->failed && !__atomic_load_n(&swarm->stop, __ATOMIC_RELAXED)
           && clock->now(clock->context) < until) {
        int64_t received = 0;
        for (int64_t i = 0; i < swarm->count; i++)
            if (swarm->members[i].remaining)
                received += serve(swarm, &swarm->members[i]);
        if (!received)
            nanosleep(&IDLE, NULL);
    }
}
