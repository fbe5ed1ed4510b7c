/* The handling of frames. A job collects the gradients of a step, and updates a chunk when the last
 * one comes. */

#include "state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Queues a reply: a chunk, or if it is bare only the fact that the chunk was stored. */
static void queue_reply(struct connection *c, uint32_t chunk, bool bare)
{
    c->replies[(c->first + c->owed++) % c->room] =
        (struct reply){.step = c->job->chunk[chunk].step, .chunk = chunk, .bare = bare};
}

/* Returns where a reply is sent from. In an asynchronous job or one with a quorum, the chunk may
 * change before the reply is out. Then a copy is sent from where the worker's gradient was
 * received. That gradient has been used. */
static const float *reply_payload(const struct job *job, uint32_t rank, const struct chunk *chunk)
{
    return waits_for_all(job) ? job->parameters + chunk->offset : gradient_of(job, rank, chunk);
}

/* Queues a chunk's present values as the reply to a worker. */
static void reply_with_chunk(struct connection *c, uint32_t number)
{
    struct job *job = c->job;
    const struct chunk *chunk = job->chunk + number;
    if (!waits_for_all(job))
        memcpy(gradient_of(job, c->rank, chunk), job->parameters + chunk->offset,
               chunk->length * sizeof(float));
    queue_reply(c, number, false);
}

static void update_chunk(struct core *core, struct job *job, struct chunk *chunk,
                         const float *const *pushed, uint32_t count, double rate)
{
    float *state[2];
    for (uint32_t i = 0; i < 2; i++)
        state[i] = job->state[i] ? job->state[i] + chunk->offset : NULL;
    update(&job->optimizer, job->parameters + chunk->offset, state[0], state[1], pushed, count,
           job->mean ? count : 1, chunk->length, chunk->step + 1, rate);
    chunk->step++;
    core->counts.updates++;
    job->counts->updates++;
}

static void push_asynchronously(struct core *core, struct connection *c)
{
    struct job *job = c->job;
    struct chunk *chunk = job->chunk + c->in.now.chunk;
    uint64_t staleness = chunk->step - c->in.now.step;
    job->counts->stale += staleness;
    if (staleness > job->counts->most_stale)
        job->counts->most_stale = staleness;
    const float *mine = gradient_of(job, c->rank, chunk);
    update_chunk(core, job, chunk, &mine, 1, c->in.now.rate);
    reply_with_chunk(c, c->in.now.chunk);
}

/* Returns whether the quorum can still be reached. Workers that are present and have not pushed may
 * still do so. */
static bool can_reach_quorum(const struct job *job, const struct chunk *chunk)
{
    uint32_t lost = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        lost += job->departed[rank] && !has_pushed(chunk, rank);
    return job->workers - lost >= job->quorum;
}

static uint32_t first_missing(const struct job *job, const struct chunk *chunk)
{
    uint32_t rank = 0;
    while (rank + 1 < job->workers && !(job->departed[rank] && !has_pushed(chunk, rank)))
        rank++;
    return rank;
}

static void fail_for_missing(struct core *core, struct job *job, const struct chunk *chunk)
{
    job->failed = true;
    report(core, job, EVENT_MISSED, first_missing(job, chunk), 0);
}

static void push_synchronously(struct core *core, struct connection *c)
{
    struct job *job = c->job;
    struct chunk *chunk = job->chunk + c->in.now.chunk;
    if (c->in.now.step < chunk->step) { /* the quorum was faster; begin_frame allows this */
        job->counts->late++;
        reply_with_chunk(c, c->in.now.chunk);
        return;
    }
    if (chunk->arrived == 0) {
        chunk->since = core->now;
        chunk->rate = c->in.now.rate;
        job->waiting++;
    } else if (chunk->rate != c->in.now.rate) {
        refuse(core, c, BAD_RATES);
        return;
    }
    chunk->arrived++;
    chunk->pushed[c->rank / 64] |= 1ULL << c->rank % 64;
    if (chunk->arrived < job->quorum) {
        if (job->departed_count && !can_reach_quorum(job, chunk))
            fail_for_missing(core, job, chunk);
        return;
    }
    const float *pushed[MOST_WORKERS];
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (has_pushed(chunk, rank))
            pushed[count++] = gradient_of(job, rank, chunk);
    update_chunk(core, job, chunk, pushed, count, c->in.now.rate);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (has_pushed(chunk, rank) && job->connection[rank]) {
            reply_with_chunk(job->connection[rank], c->in.now.chunk);
            if (job->connection[rank] != c)
                flush(core, job->connection[rank]);
        }
    memset(chunk->pushed, 0, sizeof chunk->pushed);
    chunk->arrived = 0;
    job->waiting--;
}

static struct job *find(struct core *core, uint64_t id)
{
    struct job *job = core->jobs;
    while (job && job->id != id)
        job = job->next;
    return job;
}

static bool equal(const uint8_t *a, const uint8_t *b) /* in constant time */
{
    uint8_t differs = 0;
    for (uint32_t i = 0; i < KEY_BYTES; i++)
        differs |= a[i] ^ b[i];
    return !differs;
}

static bool reject(struct core *core, struct connection *c, enum violation rule)
{
    refuse(core, c, rule);
    return false;
}

static bool join_job(struct core *core, struct connection *c)
{
    uint32_t rank = c->in.now.chunk;
    struct job *job = find(core, c->in.now.step);
    if (!job || rank >= job->workers || !equal(c->key, job->keys[rank]))
        return reject(core, c, BAD_KEY);
    if (job->connection[rank] || job->departed[rank])
        return reject(core, c, BAD_RANK);
    c->room = 2 * job->chunks + 1; /* chunks + 1 due replies; a reply for each waiting push */
    c->replies = calloc(c->room, sizeof *c->replies);
    if (!c->replies)
        return reject(core, c, BAD_CROWD);
    c->job = job;
    c->rank = rank;
    job->connection[rank] = c;
    return true;
}

/* Handles a complete header: chooses where the payload goes, or refuses the frame. */
bool begin_frame(struct core *core, struct connection *c)
{
    const struct header *h = &c->in.now;
    if (h->magic != MAGIC || h->zero[0] || h->zero[1] || h->zero[2])
        return reject(core, c, BAD_MAGIC);
    if ((h->kind == KIND_HELLO) != !c->job)
        return reject(core, c, BAD_TIME);
    if (h->kind == KIND_HELLO) {
        if (h->bytes != KEY_BYTES)
            return reject(core, c, BAD_SIZE);
        c->in.into = c->key;
        c->in.left = KEY_BYTES;
        return true;
    }
    if (h->kind != KIND_PUSH && h->kind != KIND_PULL && h->kind != KIND_INIT)
        return reject(core, c, BAD_KIND);
    if (h->chunk >= c->job->chunks)
        return reject(core, c, BAD_CHUNK);
    struct chunk *chunk = c->job->chunk + h->chunk;
    if (h->bytes != (h->kind == KIND_PULL ? 0 : chunk->length * sizeof(float)))
        return reject(core, c, BAD_SIZE);
    if (c->owed > c->job->chunks || has_pushed(chunk, c->rank))
        return reject(core, c, BAD_TWICE);
    if (h->kind != KIND_PULL
        && (waits_for_all(c->job) ? h->step != chunk->step : h->step > chunk->step))
        return reject(core, c, BAD_STEP);
    if (h->kind == KIND_PUSH && !(isfinite(h->rate) && h->rate >= 0))
        return reject(core, c, BAD_RATE);
    if (h->kind == KIND_INIT && (c->rank || chunk->step || c->job->optimizer.rule == RULE_NONE))
        return reject(core, c, BAD_TIME);
    float *into = h->kind == KIND_INIT ? c->job->parameters + chunk->offset
                                       : gradient_of(c->job, c->rank, chunk);
    c->in.into = (uint8_t *)into;
    c->in.left = h->bytes;
    return true;
}

/* Handles a complete payload. */
bool end_frame(struct core *core, struct connection *c)
{
    if (c->in.now.kind == KIND_HELLO)
        return join_job(core, c);
    if (c->job->failed)
        return true; /* the server tells its workers on the control connection */
    core->counts.chunks++;
    if (c->in.now.kind == KIND_PULL)
        reply_with_chunk(c, c->in.now.chunk);
    else if (c->in.now.kind == KIND_INIT)
        queue_reply(c, c->in.now.chunk, true);
    else if (c->job->asynchronous)
        push_asynchronously(core, c);
    else
        push_synchronously(core, c);
    return true;
}

/* Sends the replies that are due to a worker, as far as the kernel takes them. */
void flush(struct core *core, struct connection *c)
{
    bool was_blocked = c->blocked;
    c->blocked = false;
    while (c->owed && !c->blocked && !c->dead) {
        struct frame frames[BATCH];
        uint32_t count = c->owed < BATCH ? c->owed : BATCH, complete;
        for (uint32_t i = 0; i < count; i++) {
            const struct reply *reply = c->replies + (c->first + i) % c->room;
            const struct chunk *chunk = c->job->chunk + reply->chunk;
            frames[i].header = (struct header){
                .magic = MAGIC,
                .kind = KIND_RESULT,
                .chunk = reply->chunk,
                .bytes = reply->bare ? 0 : chunk->length * (uint32_t)sizeof(float),
                .step = reply->step,
            };
            frames[i].payload = reply_payload(c->job, c->rank, chunk);
        }
        enum moved moved =
            send_frames(c->socket, frames, count, &c->sent, &complete, &core->counts.bytes_out);
        c->first = (c->first + complete) % c->room;
        c->owed -= complete;
        c->blocked = moved == BLOCKED;
        if (moved == CLOSED)
            close_later(core, c);
    }
    if (c->blocked != was_blocked && !c->dead) {
        struct epoll_event event = {.events = EPOLLIN | (c->blocked ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(core->epoll, EPOLL_CTL_MOD, c->socket, &event);
    }
}

/* Handles a worker's departure. If a step can no longer be complete, the job fails. */
void remove_worker(struct core *core, struct job *job, uint32_t rank)
{
    job->departed[rank] = true;
    job->departed_count++;
    job->connection[rank] = NULL;
    if (job->asynchronous || job->failed || !job->waiting)
        return;
    for (uint32_t i = 0; i < job->chunks && !job->failed; i++)
        if (job->chunk[i].arrived && !can_reach_quorum(job, job->chunk + i))
            fail_for_missing(core, job, job->chunk + i);
}

/* Runs at every tick. Fails the job if a worker has kept the others waiting for too long. */
void fail_if_silent(struct core *core, struct job *job)
{
    if (!job->waiting || job->failed)
        return;
    for (uint32_t i = 0; i < job->chunks; i++) {
        const struct chunk *chunk = job->chunk + i;
        if (!chunk->arrived || core->now - chunk->since < job->timeout_ns)
            continue;
        uint32_t rank = 0;
        while (rank + 1 < job->workers && (has_pushed(chunk, rank) || job->departed[rank]))
            rank++;
        job->failed = true;
        report(core, job, EVENT_SILENT, rank, 0);
        return;
    }
}
