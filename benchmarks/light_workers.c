/* Many workers in one thread. Each does the I/O rounds of a worker of innet, without ever waiting, and all
 * take turns. Every result is compared as soon as it has arrived. Links lose packets at random. */

#include <math.h>
#include <time.h>

#include "round.h"

/* Random losses of packets. */
struct losses {
    double share;
    uint64_t state; /* of xorshift64*, never 0 */
    int64_t until;  /* packets that pass before the next loss */
    int64_t lost;
};

/* A worker, with the times for repetitions as in innet/host/timer.py. */
struct member {
    struct network network;
    struct worker *worker;
    int64_t remaining, unanswered, had; /* `had`: the switch has said that it has a contribution */
    double newest, quiet_until, since;  /* since the last result, or the last packet sent */
};

struct swarm {
    struct member *members;
    int64_t count;
    const uint32_t *wanted;                                 /* the rows that are right */
    int64_t contributions;                                  /* in a right result */
    double timeout, usual, slowest_probe, slowest_reminder; /* seconds */
    struct losses losses;
    int64_t stop; /* set by another thread */
    /* Output. */
    int64_t unfinished, sent, repetitions, received, corrupted, results, wrong, pending, stale;
    int64_t failed; /* an errno */
    double longest; /* round trip of this turn, or 0 */
};

enum { MOST_DOUBLINGS = 16 };

static const struct timespec IDLE = {0, 200000};

/* ---- losses ---------------------------------------------------------------------------------- */

/* Returns the number of packets before the next loss, which has a geometric distribution. */
static int64_t draw_gap(struct losses *losses)
{
    if (losses->share <= 0)
        return INT64_MAX;
    losses->state ^= losses->state >> 12;
    losses->state ^= losses->state << 25;
    losses->state ^= losses->state >> 27;
    double uniform = (double)(losses->state * 0x2545f4914f6cdd1dull >> 11) * 0x1p-53;
    return (int64_t)(log1p(-uniform) / log1p(-losses->share));
}

static int is_lost(struct losses *losses)
{
    if (losses->until-- > 0)
        return 0;
    losses->until = draw_gap(losses);
    losses->lost++;
    return 1;
}

/* A link that loses packets. */
struct lossy {
    const struct network *below;
    struct losses *losses;
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

/* Leaves the packets that are not lost at the beginning. Returns their number. */
static int64_t keep_rest(struct losses *losses, uint8_t *packets, int64_t count, size_t bytes)
{
    uint8_t *end = packets;
    for (int64_t i = 0; i < count; i++, packets += bytes) {
        if (is_lost(losses))
            continue;
        if (end != packets)
            memmove(end, packets, bytes);
        end += bytes;
    }
    return count - (packets - end) / (int64_t)bytes;
}

static int lossy_receive(void *context, struct inbox *inbox)
{
    const struct lossy *link = context;
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

/* Notes that the switch has a contribution, and that others are missing; see Window.had. */
static void note_pending(struct member *member, const uint8_t *header, double now)
{
    struct window *window = member->worker->window;
    int64_t slot = half_at(header + AT_SLOT) - window->first_slot;
    if (slot < 0 || slot >= window->slots || !window->attempts[slot]
        || window->sequence[slot] != word_at(header + AT_SEQUENCE))
        return;
    window->state[slot] = STATE_HAD;
    window->suspect[slot] = 0;
    member->had = 1;
    member->unanswered = 0;
    member->quiet_until = member->since = now;
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
            note_pending(member, header, now);
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

/* Makes chunks due that the switch has had for long; see Window.remind. */
static void remind(const struct swarm *swarm, struct member *member, double now)
{
    struct window *window = member->worker->window;
    member->had = 0;
    for (int64_t slot = 0; slot < window->slots; slot++) {
        if (window->state[slot] != STATE_HAD)
            continue;
        member->had = 1;
        double wait = backed_off(swarm->timeout, window->attempts[slot], swarm->slowest_reminder);
        if (now >= window->sent_at[slot] + wait)
            window->state[slot] = STATE_DUE;
    }
}

/* Makes the lowest chunks due after a silence: 1, 2, and then 4. There is no congestion window here, and a
 * switch below another sends its sum up again for each repetition. */
static void probe(struct swarm *swarm, struct member *member, double now)
{
    struct window *window = member->worker->window;
    if (now < member->since + backed_off(swarm->timeout, member->unanswered, swarm->slowest_probe))
        return;
    int64_t lowest = INT64_MAX, most = 1ll << (member->unanswered < 2 ? member->unanswered : 2);
    for (int64_t slot = 0; slot < window->slots; slot++)
        if (window->attempts[slot] && window->chunk[slot] < lowest)
            lowest = window->chunk[slot];
    for (int64_t slot = 0; slot < window->slots; slot++) {
        if (window->attempts[slot] && window->chunk[slot] - lowest < most) {
            window->state[slot] = STATE_DUE;
            window->suspect[slot] = 0;
        }
    }
    member->unanswered++;
    member->since = now;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Runs an I/O round of a worker. Returns how many packets it has received. */
static int64_t serve(struct swarm *swarm, struct member *member)
{
    struct worker *worker = member->worker;
    struct lossy link = {&member->network, &swarm->losses};
    struct network network = {
        .context = &link, .now = lossy_now, .send = lossy_send, .receive = lossy_receive};
    struct io_round io = {.most = worker->window->slots,
                          .batches = 1,
                          .round_trip_began = INFINITY,
                          .too_soon = swarm->usual / 2,
                          .reordering = swarm->usual,
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
    if (io.samples)
        swarm->longest = fmax(swarm->longest, io.round_trips[0]);
    if (io.others)
        take_others(swarm, member, &io);
    compare(swarm, worker, io.finished);
    member->newest = io.newest;
    member->remaining -= io.finished;
    swarm->unfinished -= io.finished && !member->remaining;
    if (io.finished)
        member->unanswered = 0;
    if (io.finished || io.sent)
        member->since = io.now;
    if (member->had)
        remind(swarm, member, io.now);
    probe(swarm, member, io.now);
    return io.received;
}

/* Lets all workers take turns for so many seconds, or until all have all results. */
void innet_swarm_run(struct swarm *swarm, double seconds)
{
    const struct network *clock = &swarm->members->network;
    double until = clock->now(clock->context) + seconds;
    swarm->longest = 0;
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
