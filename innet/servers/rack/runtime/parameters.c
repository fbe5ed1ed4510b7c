/* Parameters above racks: results that ask for it leave as parameters, not as sums.
 *
 * The aggregation program sums as usual. The code here sees its results on their way out. It sees each
 * result as often as it is sent: once for every switch below, and again for every worker that has lost
 * it. So nothing here counts results. A row names its chunk and its step, and each step is taken once.
 *
 * innet/wire/parameters.py describes the contents of a row.
 *
 * Every core of the switch calls this from a thread of its own. Steps share the table of jobs, and each
 * holds the lock of its chunk: two cores may have the same one, since a new term can give a row another
 * slot. Rows that change the table have it to themselves. */

#include "parameters.h"
#include "words.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int32_t i32;

/* A packet has room for a row's header, and for more than the four float64 of an optimizer. */
enum { LEAST_LANES = HEADER_LANES + 4 * 2 + 1 };
enum { LOCKS = 64 };
enum { ASKS = ASK_DESCRIBE | ASK_BEGIN | ASK_STEP };
static const enum refusal ACCEPTED = 0; /* in place of a reason */

/* The parameters of one packet, and behind them the optimizer's state for them. */
struct chunk {
    float *values;
    u32 floats;
    u32 step; /* the number of steps taken */
};

struct job {
    u32 number, nonce, chunks;
    struct optimizer optimizer;
    struct chunk *chunk;
    u64 bytes, used_ns;
    struct job *next;
};

struct parameters {
    u64 most_bytes, silent_ns;
    _Atomic u32 service;          /* the switch's address, which no other sender can use */
    pthread_rwlock_t table;       /* of the list of jobs and the memory */
    pthread_mutex_t locks[LOCKS]; /* of chunks, which share them */
    struct job *jobs;
    struct parameter_counts counts;
};

static void count(u64 *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

/* A row of a result. */
struct row {
    u32 job, members; /* `members`: the number of workers in the sum */
    u32 operation, lanes;
    i32 lane[MAX_LANES];
};

static u64 clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

/* ---- jobs and their memory ---------------------------------------------------------------------- */

static u64 chunk_bytes(const struct job *job, u32 floats)
{
    return (u64)floats * sizeof(float) * (1 + state_count(job->optimizer.rule));
}

static void forget(struct parameters *p, struct job **at)
{
    struct job *job = *at;
    *at = job->next;
    for (u32 i = 0; i < job->chunks; i++)
        free(job->chunk[i].values);
    p->counts.bytes -= job->bytes;
    p->counts.jobs--;
    free(job->chunk);
    free(job);
}

static struct job **find(struct parameters *p, u32 number)
{
    struct job **at = &p->jobs;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* Reserves bytes for a job. If necessary it takes them from jobs that have been silent for long, since
 * nobody reports the end of a job. */
static bool take_bytes(struct parameters *p, struct job *job, u64 bytes, u64 now)
{
    while (p->counts.bytes + bytes > p->most_bytes) {
        struct job **oldest = NULL;
        for (struct job **at = &p->jobs; *at; at = &(*at)->next)
            if (*at != job && (!oldest || (*at)->used_ns < (*oldest)->used_ns))
                oldest = at;
        if (!oldest || now - (*oldest)->used_ns < p->silent_ns)
            return false;
        forget(p, oldest);
    }
    job->bytes += bytes;
    p->counts.bytes += bytes;
    return true;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static double real_at(const i32 *lane)
{
    u64 bits = (u64)(u32)lane[0] << 32 | (u32)lane[1];
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Begins a job anew, unless the nonce shows that this request was handled already. */
static enum refusal describe(struct parameters *p, const struct row *row, u64 now)
{
    const i32 *lane = row->lane;
    if (row->operation != OPERATION_MAX || lane[ROW_COUNT] < 1 || (u32)lane[ROW_COUNT] > MOST_CHUNKS
        || lane[ROW_RULE] < 0 || lane[ROW_RULE] >= RULES)
        return REFUSAL_MALFORMED;
    struct job **at = find(p, row->job);
    if (*at && (*at)->nonce == (u32)lane[ROW_NONCE])
        return ACCEPTED;
    if (*at)
        forget(p, at);
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return REFUSAL_NO_ROOM;
    const i32 *body = lane + HEADER_LANES;
    *job = (struct job){
        .number = row->job,
        .nonce = (u32)lane[ROW_NONCE],
        .chunks = (u32)lane[ROW_COUNT],
        .optimizer =
            {
                .rule = (u32)lane[ROW_RULE],
                .first = real_at(body),
                .second = real_at(body + 2),
                .epsilon = real_at(body + 4),
                .weight_decay = real_at(body + 6),
            },
        .used_ns = now,
    };
    u64 index = (u64)job->chunks * sizeof *job->chunk;
    if (!take_bytes(p, job, index, now)) {
        free(job);
        return REFUSAL_NO_ROOM;
    }
    job->chunk = calloc(job->chunks, sizeof *job->chunk);
    job->next = p->jobs;
    p->jobs = job;
    p->counts.jobs++;
    if (!job->chunk) {
        job->chunks = 0;
        forget(p, &p->jobs);
        return REFUSAL_NO_ROOM;
    }
    return ACCEPTED;
}

static enum refusal begin(struct parameters *p, struct job *job, struct chunk *chunk,
                          const struct row *row, u64 now)
{
    u32 floats = row->lanes - HEADER_LANES;
    if (row->operation != OPERATION_MAX)
        return REFUSAL_MALFORMED;
    if (!chunk->values) {
        u64 bytes = chunk_bytes(job, floats);
        if (!take_bytes(p, job, bytes, now))
            return REFUSAL_NO_ROOM;
        chunk->values = calloc(1, bytes);
        chunk->floats = floats;
        if (!chunk->values) {
            job->bytes -= bytes;
            p->counts.bytes -= bytes;
            return REFUSAL_NO_ROOM;
        }
    }
    if (chunk->step || chunk->floats != floats)
        return REFUSAL_OUT_OF_TURN;
    memcpy(chunk->values, row->lane + HEADER_LANES, floats * sizeof(float));
    return ACCEPTED;
}

/* Computes the mean of the gradients, as dequantize in innet/host/quantizers/fixed_point.py does. */
static void mean(const struct row *row, float *gradient, u32 floats)
{
    const i32 *sum = row->lane + HEADER_LANES;
    i32 exponent = row->lane[ROW_SCALE];
    float scale = exponent == SCALE_NOT_FINITE ? __builtin_nanf("") : __builtin_ldexpf(1, exponent);
    float count = (float)row->members;
    for (u32 i = 0; i < floats; i++)
        gradient[i] = (float)sum[i] / count * scale;
}

static enum refusal take_step(struct parameters *p, struct job *job, struct chunk *chunk,
                              const struct row *row)
{
    const i32 *lane = row->lane;
    u32 step = (u32)lane[ROW_STEP];
    if (row->operation != OPERATION_SUM)
        return REFUSAL_MALFORMED;
    if (!chunk->values || chunk->floats != row->lanes - HEADER_LANES)
        return REFUSAL_UNKNOWN;
    if (step == chunk->step && step) { /* it was taken when its result first left */
        count(&p->counts.repeated);
        return ACCEPTED;
    }
    if (step != chunk->step + 1)
        return REFUSAL_OUT_OF_TURN;
    u64 bits = 0;
    for (u32 i = 0; i < 4; i++)
        bits = bits << 16 | ((u32)lane[ROW_RATE + i] & 0xffff);
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    float gradient[MAX_LANES], *values = chunk->values;
    const float *pushed[] = {gradient};
    u32 n = chunk->floats, states = state_count(job->optimizer.rule);
    mean(row, gradient, n);
    update(&job->optimizer, values, states > 0 ? values + n : NULL,
           states > 1 ? values + 2 * n : NULL, pushed, 1, 1, n, step, rate);
    chunk->step = step;
    count(&p->counts.steps);
    return ACCEPTED;
}

/* A sum adds up all workers' headers. If the workers agree, the sum is a multiple of their number. */
static bool divide_header(struct row *row)
{
    for (u32 i = 0; i < HEADER_LANES; i++) {
        if (!row->members || row->lane[i] % (i32)row->members)
            return false;
        row->lane[i] /= (i32)row->members;
    }
    return true;
}

/* Carries out a row's request, and replaces the row by the answer. Call it with the lock of the table. */
static enum refusal carry_out(struct parameters *p, u32 asks, struct row *row)
{
    u64 now = clock_ns();
    i32 *lane = row->lane;
    if (asks == ASK_DESCRIBE)
        return describe(p, row, now);
    struct job *job = *find(p, row->job);
    if (!job || job->nonce != (u32)lane[ROW_NONCE])
        return REFUSAL_UNKNOWN;
    if (lane[ROW_CHUNK] < 0 || (u32)lane[ROW_CHUNK] >= job->chunks)
        return REFUSAL_MALFORMED;
    struct chunk *chunk = &job->chunk[lane[ROW_CHUNK]];
    __atomic_store_n(&job->used_ns, now, __ATOMIC_RELAXED);
    pthread_mutex_t *lock = &p->locks[(u32)lane[ROW_CHUNK] % LOCKS];
    pthread_mutex_lock(lock);
    enum refusal refusal = REFUSAL_MALFORMED;
    if (asks == ASK_BEGIN)
        refusal = begin(p, job, chunk, row, now);
    else if (asks == ASK_STEP)
        refusal = take_step(p, job, chunk, row);
    if (refusal == ACCEPTED)
        memcpy(lane + HEADER_LANES, chunk->values, chunk->floats * sizeof(float));
    pthread_mutex_unlock(lock);
    return refusal;
}

static enum refusal answer(struct parameters *p, u32 asks, struct row *row)
{
    if (row->operation == OPERATION_SUM && !divide_header(row))
        return REFUSAL_DISAGREE;
    if (asks == ASK_STEP)
        pthread_rwlock_rdlock(&p->table);
    else
        pthread_rwlock_wrlock(&p->table);
    enum refusal refusal = carry_out(p, asks, row);
    pthread_rwlock_unlock(&p->table);
    return refusal;
}

/* ---- frames ------------------------------------------------------------------------------------ */

/* The headers in front of innet's. */
struct encapsulation {
    struct ether_header ethernet;
    struct iphdr ip;
    struct udphdr udp;
} __attribute__((packed));
_Static_assert(sizeof(struct encapsulation) == ENCAPSULATION_BYTES, "as in innet/wire/frames.py");

/* Returns whether a frame is a result that this switch has made. */
static bool is_result(const struct parameters *p, const struct encapsulation *front)
{
    const u8 *header = (const u8 *)(front + 1);
    return front->ethernet.ether_type == htons(ETHERTYPE_IP) && front->ip.version == 4
           && front->ip.ihl * 4 == sizeof front->ip && front->ip.protocol == IPPROTO_UDP
           && ntohl(front->ip.saddr) == atomic_load(&p->service)
           && ntohs(front->udp.source) == UDP_PORT && header[AT_VERSION] == VERSION
           && header[AT_KIND] == KIND_RESULT;
}

/* Sets the check, as innet/wire/check.py does. */
static void seal(const struct encapsulation *front, u8 *header, u32 lanes)
{
    u64 sum = SOURCE_WEIGHTS[0] + SOURCE_WEIGHTS[1] * ntohl(front->ip.saddr)
              + SOURCE_WEIGHTS[2] * ntohs(front->udp.source)
              + word_sum(header, HEADER_BYTES / WORD_BYTES + lanes, WORD_WEIGHTS);
    put_word(header + AT_CHECK, (u32)(sum >> 32));
}

void parameters_outward(void *context, u8 *frame, u32 bytes)
{
    struct parameters *p = context;
    const struct encapsulation *front = (const struct encapsulation *)frame;
    u8 *header = frame + sizeof *front, *lanes = header + HEADER_BYTES;
    const u32 before = sizeof *front + HEADER_BYTES;
    if (bytes < before)
        return;
    /* Frames may be padded: there may be more bytes behind the datagram. */
    u32 used = sizeof front->ethernet + ntohs(front->ip.tot_len);
    if (used > bytes || used < before + WORD_BYTES * LEAST_LANES
        || used > before + WORD_BYTES * MAX_LANES || (used - before) % WORD_BYTES)
        return;
    u32 flags = half_at(header + AT_FLAGS), asks = flags & ASKS;
    if (!is_result(p, front) || !asks || flags & (ASK_DONE | ASK_REFUSED))
        return;
    struct row row = {
        .job = half_at(header + AT_JOB),
        .operation = header[AT_OPERATION],
        .lanes = (used - before) / WORD_BYTES,
        .members = header[AT_COUNT],
    };
    load_row(lanes, (u32 *)row.lane, row.lanes);
    bool overflowed = flags & FLAG_OVERFLOW && row.operation == OPERATION_SUM;
    enum refusal refusal = overflowed ? REFUSAL_MALFORMED : answer(p, asks, &row);
    if (refusal != ACCEPTED) {
        count(&p->counts.refused);
        memset(row.lane, 0, sizeof row.lane);
        row.lane[0] = (i32)refusal;
    }
    flags |= refusal == ACCEPTED ? ASK_DONE : ASK_REFUSED;
    put_half(header + AT_FLAGS, (uint16_t)flags);
    store_row(lanes, (const u32 *)row.lane, row.lanes);
    seal(front, header, row.lanes);
}

struct parameters *parameters_new(u64 most_bytes, u64 silent_ns)
{
    struct parameters *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->most_bytes = most_bytes;
    p->silent_ns = silent_ns;
    pthread_rwlockattr_t fair; /* else steps could keep a job from beginning */
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&p->table, &fair);
    for (u32 i = 0; i < LOCKS; i++)
        pthread_mutex_init(&p->locks[i], NULL);
    return p;
}

void parameters_serve(struct parameters *p, u32 address) { atomic_store(&p->service, address); }

void parameters_free(struct parameters *p)
{
    while (p->jobs)
        forget(p, &p->jobs);
    free(p);
}

const struct parameter_counts *parameters_counts(const struct parameters *p) { return &p->counts; }
