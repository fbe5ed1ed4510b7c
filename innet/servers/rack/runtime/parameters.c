/* Parameters above racks: results that ask for it leave as parameters, not as sums.
 *
 * The aggregation program sums as usual. The code here sees its results on their way out. It sees each
 * result as often as it is sent: once for every switch below, and again for every worker that has lost
 * it. So nothing here counts results. A row names its chunk and its step, and each step is taken once.
 *
 * innet/wire/parameters.py describes the contents of a row. Only the switch's thread calls this. */

#include "parameters.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ETHERNET = 14,
    IP = 20,
    UDP = 8,
    INNET = 24,
    FRONT = ETHERNET + IP + UDP,
    LANES = FRONT + INNET
};
enum { INNET_PORT = 19790, VERSION = 2, IS_RESULT = 2, SUM = 1, MAXIMUM = 2, MOST_LANES = 256 };

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
    _Atomic u32 service; /* the switch's address, which no other sender can use */
    struct job *jobs;
    u64 weight[MOST_LANES + 8];
    struct parameter_counts counts;
};

/* A row of a result. */
struct row {
    u32 job, members; /* `members`: the number of workers in the sum */
    u32 operation, lanes;
    i32 lane[MOST_LANES];
};

static u64 clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

static u32 word_at(const u8 *at)
{
    u32 word;
    memcpy(&word, at, 4);
    return __builtin_bswap32(word);
}

static void put_word(u8 *at, u32 word)
{
    word = __builtin_bswap32(word);
    memcpy(at, &word, 4);
}

static u32 half_at(const u8 *at) { return (u32)at[0] << 8 | at[1]; }

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
    if (row->operation != MAXIMUM || lane[ROW_COUNT] < 1 || (u32)lane[ROW_COUNT] > MOST_CHUNKS
        || lane[ROW_RULE] < 0 || lane[ROW_RULE] >= RULES)
        return MALFORMED;
    struct job **at = find(p, row->job);
    if (*at && (*at)->nonce == (u32)lane[ROW_NONCE])
        return ACCEPTED;
    if (*at)
        forget(p, at);
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NO_ROOM;
    const i32 *body = lane + ROW_HEADER;
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
        return NO_ROOM;
    }
    job->chunk = calloc(job->chunks, sizeof *job->chunk);
    job->next = p->jobs;
    p->jobs = job;
    p->counts.jobs++;
    if (!job->chunk) {
        job->chunks = 0;
        forget(p, &p->jobs);
        return NO_ROOM;
    }
    return ACCEPTED;
}

static enum refusal begin(struct parameters *p, struct job *job, struct chunk *chunk,
                          const struct row *row, u64 now)
{
    u32 floats = row->lanes - ROW_HEADER;
    if (row->operation != MAXIMUM)
        return MALFORMED;
    if (!chunk->values) {
        u64 bytes = chunk_bytes(job, floats);
        if (!take_bytes(p, job, bytes, now))
            return NO_ROOM;
        chunk->values = calloc(1, bytes);
        chunk->floats = floats;
        if (!chunk->values) {
            job->bytes -= bytes;
            p->counts.bytes -= bytes;
            return NO_ROOM;
        }
    }
    if (chunk->step || chunk->floats != floats)
        return OUT_OF_TURN;
    memcpy(chunk->values, row->lane + ROW_HEADER, floats * sizeof(float));
    return ACCEPTED;
}

/* Computes the mean of the gradients, as dequantize in innet/host/quantizers/fixed_point.py does. */
static void mean(const struct row *row, float *gradient, u32 floats)
{
    const i32 *sum = row->lane + ROW_HEADER;
    i32 exponent = row->lane[ROW_SCALE];
    float scale = exponent == NOT_FINITE ? __builtin_nanf("") : __builtin_ldexpf(1, exponent);
    float count = (float)row->members;
    for (u32 i = 0; i < floats; i++)
        gradient[i] = (float)sum[i] / count * scale;
}

static enum refusal take_step(struct parameters *p, struct job *job, struct chunk *chunk,
                              const struct row *row)
{
    const i32 *lane = row->lane;
    u32 step = (u32)lane[ROW_STEP];
    if (row->operation != SUM)
        return MALFORMED;
    if (!chunk->values || chunk->floats != row->lanes - ROW_HEADER)
        return UNKNOWN;
    if (step == chunk->step && step) { /* it was taken when its result first left */
        p->counts.repeated++;
        return ACCEPTED;
    }
    if (step != chunk->step + 1)
        return OUT_OF_TURN;
    u64 bits = 0;
    for (u32 i = 0; i < 4; i++)
        bits = bits << 16 | ((u32)lane[ROW_RATE + i] & 0xffff);
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    float gradient[MOST_LANES], *values = chunk->values;
    const float *pushed[] = {gradient};
    u32 n = chunk->floats, states = state_count(job->optimizer.rule);
    mean(row, gradient, n);
    update(&job->optimizer, values, states > 0 ? values + n : NULL,
           states > 1 ? values + 2 * n : NULL, pushed, 1, 1, n, step, rate);
    chunk->step = step;
    p->counts.steps++;
    return ACCEPTED;
}

/* A sum adds up all workers' headers. If the workers agree, the sum is a multiple of their number. */
static bool divide_header(struct row *row)
{
    for (u32 i = 0; i < ROW_HEADER; i++) {
        if (!row->members || row->lane[i] % (i32)row->members)
            return false;
        row->lane[i] /= (i32)row->members;
    }
    return true;
}

/* Carries out a row's request, and replaces the row by the answer. */
static enum refusal answer(struct parameters *p, u32 asks, struct row *row)
{
    u64 now = clock_ns();
    if (row->operation == SUM && !divide_header(row))
        return DISAGREE;
    i32 *lane = row->lane;
    if (asks == ASKS_DESCRIBE)
        return describe(p, row, now);
    struct job *job = *find(p, row->job);
    if (!job || job->nonce != (u32)lane[ROW_NONCE])
        return UNKNOWN;
    if (lane[ROW_CHUNK] < 0 || (u32)lane[ROW_CHUNK] >= job->chunks)
        return MALFORMED;
    struct chunk *chunk = &job->chunk[lane[ROW_CHUNK]];
    job->used_ns = now;
    enum refusal refusal;
    if (asks == ASKS_BEGIN)
        refusal = begin(p, job, chunk, row, now);
    else if (asks == ASKS_STEP)
        refusal = take_step(p, job, chunk, row);
    else
        return MALFORMED;
    if (refusal == ACCEPTED)
        memcpy(lane + ROW_HEADER, chunk->values, chunk->floats * sizeof(float));
    return refusal;
}

/* ---- frames ------------------------------------------------------------------------------------ */

/* As innet/wire/check.py: the check covers source address, source port, header and lanes. */
static void seal(const struct parameters *p, u8 *frame, u32 lanes)
{
    const u8 *header = frame + FRONT;
    u64 sum = p->weight[0] + p->weight[1] * word_at(frame + ETHERNET + 12)
              + p->weight[2] * half_at(frame + ETHERNET + IP);
    for (u32 i = 0; i < 5; i++)
        sum += p->weight[3 + i] * word_at(header + 4 * i);
    for (u32 i = 0; i < lanes; i++)
        sum += p->weight[8 + i] * word_at(frame + LANES + 4 * i);
    put_word(frame + FRONT + 20, (u32)(sum >> 32));
}

void parameters_outward(void *context, u8 *frame, u32 bytes)
{
    struct parameters *p = context;
    u8 *header = frame + FRONT;
    if (bytes < LANES)
        return;
    /* Frames may be padded: there may be more bytes behind the datagram. */
    u32 used = ETHERNET + half_at(frame + ETHERNET + 2), lanes = (used - LANES) / 4;
    if (used > bytes || used < LANES + 4 * (ROW_HEADER + 9) || lanes > MOST_LANES
        || used % 4 != LANES % 4)
        return;
    if (half_at(frame + 12) != 0x0800 || frame[ETHERNET] != 0x45 || frame[ETHERNET + 9] != 17
        || word_at(frame + ETHERNET + 12) != atomic_load(&p->service)
        || half_at(frame + ETHERNET + IP) != INNET_PORT || header[0] != VERSION
        || header[1] != IS_RESULT)
        return;
    u32 flags = half_at(header + 10), asks = flags & ASKS;
    if (!asks || flags & (DONE | REFUSED))
        return;
    struct row row = {
        .job = half_at(header + 4),
        .operation = header[2],
        .lanes = lanes,
        .members = (u32)__builtin_popcount(word_at(header + 16)),
    };
    for (u32 i = 0; i < row.lanes; i++)
        row.lane[i] = (i32)word_at(frame + LANES + 4 * i);
    enum refusal refusal =
        flags & OVERFLOWED && row.operation == SUM ? MALFORMED : answer(p, asks, &row);
    if (refusal != ACCEPTED) {
        p->counts.refused++;
        memset(row.lane, 0, sizeof row.lane);
        row.lane[0] = (i32)refusal;
    }
    flags |= refusal == ACCEPTED ? DONE : REFUSED;
    header[10] = (u8)(flags >> 8);
    header[11] = (u8)flags;
    for (u32 i = 0; i < row.lanes; i++)
        put_word(frame + LANES + 4 * i, (u32)row.lane[i]);
    seal(p, frame, row.lanes);
}

struct parameters *parameters_new(u64 most_bytes, u64 silent_ns)
{
    struct parameters *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->most_bytes = most_bytes;
    p->silent_ns = silent_ns;
    for (u32 k = 0; k < MOST_LANES + 8; k++) { /* splitmix64, seeded with "innet" */
        u64 mixed = 0x696e6e6574 + k * 0x9E3779B97F4A7C15;
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
        p->weight[k] = mixed ^ mixed >> 31;
    }
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
