/* Parameters above racks: results that ask for parameters leave as parameters, not as sums.
 *
 * The aggregation program sums as usual. The code here sees its results on their way out. It sees each
 * result as often as it is sent: once for every switch below, and again for every worker that has lost
 * it. So nothing here counts results. A request names its chunk and its step, and each step is taken
 * once. innet/wire/parameters.py describes the lanes of a request.
 *
 * Every core of the switch calls this from a thread of its own. Steps share the table of jobs. Each
 * step holds the lock of its chunk, since two cores may have the same chunk: a new term can give a
 * chunk another slot. Requests that change the table have it to themselves. */

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

/* A request has room for its header, and for more than the four float64 of an optimizer. */
enum { LEAST_LANES = HEADER_LANES + 4 * 2 + 1 };
enum { LOCKS = 64 };
enum { ASKS = ASK_DESCRIBE | ASK_BEGIN | ASK_STEP };
static const enum refusal ACCEPTED = 0; /* in place of a reason */

/* The parameters of one packet, and behind them the optimizer's state for them. */
struct chunk {
    float *values;
    uint32_t floats;
    uint32_t step; /* the number of steps taken */
};

struct job {
    uint32_t number, nonce, chunks;
    struct optimizer optimizer;
    struct chunk *chunk;
    uint64_t bytes, used_ns;
    struct job *next;
};

struct parameters {
    uint64_t most_bytes, silent_ns;
    _Atomic uint32_t service;     /* the switch's address, which no other sender can use */
    pthread_rwlock_t table;       /* for the list of jobs and the memory */
    pthread_mutex_t locks[LOCKS]; /* for the chunks, which share them */
    struct job *jobs;
    struct parameter_counts counts;
};

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

/* A result that asks for something. Its lanes are a header and, behind HEADER_LANES, a row. */
struct request {
    uint32_t asks;         /* one of the flags in ASKS; several are malformed */
    uint32_t job, members; /* `members`: the number of workers in the sum */
    uint32_t operation;
    bool overflowed; /* a lane of the sum did */
    uint32_t lanes;
    int32_t lane[MAX_LANES];
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- jobs and their memory ---------------------------------------------------------------------- */

static uint64_t chunk_bytes(const struct job *job, uint32_t floats)
{
    return (uint64_t)floats * sizeof(float) * (1 + state_count(job->optimizer.rule));
}

static void forget(struct parameters *p, struct job **at)
{
    struct job *job = *at;
    *at = job->next;
    for (uint32_t i = 0; i < job->chunks; i++)
        free(job->chunk[i].values);
    p->counts.bytes -= job->bytes;
    p->counts.jobs--;
    free(job->chunk);
    free(job);
}

static struct job **find(struct parameters *p, uint32_t number)
{
    struct job **at = &p->jobs;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* Reserves bytes for a job. If necessary it takes them from jobs that have been silent for long,
 * since the end of a job is not reported. */
static bool take_bytes(struct parameters *p, struct job *job, uint64_t bytes, uint64_t now)
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

static double real_at(const int32_t *lane)
{
    uint64_t bits = (uint64_t)(uint32_t)lane[0] << 32 | (uint32_t)lane[1];
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Begins a job anew, unless the nonce shows that this request was handled already. */
static enum refusal describe(struct parameters *p, const struct request *request, uint64_t now)
{
    const int32_t *lane = request->lane;
    if (request->operation != OPERATION_MAX || lane[LANE_COUNT] < 1
        || (uint32_t)lane[LANE_COUNT] > MOST_CHUNKS || lane[LANE_RULE] < 0
        || lane[LANE_RULE] >= RULES)
        return REFUSAL_MALFORMED;
    struct job **at = find(p, request->job);
    if (*at && (*at)->nonce == (uint32_t)lane[LANE_NONCE])
        return ACCEPTED;
    if (*at)
        forget(p, at);
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return REFUSAL_NO_ROOM;
    const int32_t *body = lane + HEADER_LANES;
    *job = (struct job){
        .number = request->job,
        .nonce = (uint32_t)lane[LANE_NONCE],
        .chunks = (uint32_t)lane[LANE_COUNT],
        .optimizer =
            {
                .rule = (uint32_t)lane[LANE_RULE],
                .first = real_at(body),
                .second = real_at(body + 2),
                .epsilon = real_at(body + 4),
                .weight_decay = real_at(body + 6),
            },
        .used_ns = now,
    };
    uint64_t index = (uint64_t)job->chunks * sizeof *job->chunk;
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

/* Sets the initial parameters of a chunk. */
static enum refusal begin(struct parameters *p, struct job *job, struct chunk *chunk,
                          const struct request *request, uint64_t now)
{
    uint32_t floats = request->lanes - HEADER_LANES;
    if (request->operation != OPERATION_MAX)
        return REFUSAL_MALFORMED;
    if (!chunk->values) {
        uint64_t bytes = chunk_bytes(job, floats);
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
    memcpy(chunk->values, request->lane + HEADER_LANES, floats * sizeof(float));
    return ACCEPTED;
}

/* Computes the mean of the gradients, as dequantize in innet/host/quantizers/fixed_point.py does. */
static void mean(const struct request *request, float *gradient, uint32_t floats)
{
    const int32_t *sum = request->lane + HEADER_LANES;
    int32_t exponent = request->lane[LANE_SCALE];
    float scale = exponent == SCALE_NOT_FINITE ? __builtin_nanf("") : __builtin_ldexpf(1, exponent);
    float count = (float)request->members;
    for (uint32_t i = 0; i < floats; i++)
        gradient[i] = (float)sum[i] / count * scale;
}

/* Returns the learning rate, a float64 in four lanes of 16 bits each. */
static double rate_of(const int32_t *lane)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < 4; i++)
        bits = bits << 16 | ((uint32_t)lane[LANE_RATE + i] & 0xffff);
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    return rate;
}

/* Makes a step of a chunk, unless it was made when the same result left before. */
static enum refusal take_step(struct parameters *p, struct job *job, struct chunk *chunk,
                              const struct request *request)
{
    const int32_t *lane = request->lane;
    uint32_t step = (uint32_t)lane[LANE_STEP];
    if (request->operation != OPERATION_SUM)
        return REFUSAL_MALFORMED;
    if (!chunk->values || chunk->floats != request->lanes - HEADER_LANES)
        return REFUSAL_UNKNOWN;
    if (step == chunk->step && step) { /* it was taken when its result first left */
        count(&p->counts.repeated);
        return ACCEPTED;
    }
    if (step != chunk->step + 1)
        return REFUSAL_OUT_OF_TURN;
    float gradient[MAX_LANES], *values = chunk->values;
    const float *pushed[] = {gradient};
    uint32_t n = chunk->floats, states = state_count(job->optimizer.rule);
    mean(request, gradient, n);
    update(&job->optimizer, values, states > 0 ? values + n : NULL,
           states > 1 ? values + 2 * n : NULL, pushed, 1, 1, n, step, rate_of(lane));
    chunk->step = step;
    count(&p->counts.steps);
    return ACCEPTED;
}

/* A sum adds up all workers' headers. If the workers agree, the sum is a multiple of their number. */
static bool divide_header(struct request *request)
{
    for (uint32_t i = 0; i < HEADER_LANES; i++) {
        if (!request->members || request->lane[i] % (int32_t)request->members)
            return false;
        request->lane[i] /= (int32_t)request->members;
    }
    return true;
}

/* Carries out a request, and replaces its row by the answer. Call it with the lock of the table. */
static enum refusal carry_out(struct parameters *p, struct request *request)
{
    uint64_t now = clock_ns();
    int32_t *lane = request->lane;
    if (request->asks == ASK_DESCRIBE)
        return describe(p, request, now);
    struct job *job = *find(p, request->job);
    if (!job || job->nonce != (uint32_t)lane[LANE_NONCE])
        return REFUSAL_UNKNOWN;
    if (lane[LANE_CHUNK] < 0 || (uint32_t)lane[LANE_CHUNK] >= job->chunks)
        return REFUSAL_MALFORMED;
    struct chunk *chunk = &job->chunk[lane[LANE_CHUNK]];
    __atomic_store_n(&job->used_ns, now, __ATOMIC_RELAXED);
    pthread_mutex_t *lock = &p->locks[(uint32_t)lane[LANE_CHUNK] % LOCKS];
    pthread_mutex_lock(lock);
    enum refusal refusal = REFUSAL_MALFORMED;
    if (request->asks == ASK_BEGIN)
        refusal = begin(p, job, chunk, request, now);
    else if (request->asks == ASK_STEP)
        refusal = take_step(p, job, chunk, request);
    if (refusal == ACCEPTED)
        memcpy(lane + HEADER_LANES, chunk->values, chunk->floats * sizeof(float));
    pthread_mutex_unlock(lock);
    return refusal;
}

static enum refusal answer(struct parameters *p, struct request *request)
{
    if (request->operation == OPERATION_SUM && request->overflowed)
        return REFUSAL_MALFORMED;
    if (request->operation == OPERATION_SUM && !divide_header(request))
        return REFUSAL_DISAGREE;
    if (request->asks == ASK_STEP)
        pthread_rwlock_rdlock(&p->table);
    else
        pthread_rwlock_wrlock(&p->table);
    enum refusal refusal = carry_out(p, request);
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
    const uint8_t *header = (const uint8_t *)(front + 1);
    return front->ethernet.ether_type == htons(ETHERTYPE_IP) && front->ip.version == 4
           && front->ip.ihl * 4 == sizeof front->ip && front->ip.protocol == IPPROTO_UDP
           && ntohl(front->ip.saddr) == atomic_load(&p->service)
           && ntohs(front->udp.source) == UDP_PORT && header[AT_VERSION] == VERSION
           && upper_nibble(header + AT_KIND) == KIND_RESULT;
}

/* Sets the check, as innet/wire/check.py does. */
static void seal(const struct encapsulation *front, uint8_t *header, uint32_t lanes)
{
    uint64_t sum = SOURCE_WEIGHTS[0] + SOURCE_WEIGHTS[1] * ntohl(front->ip.saddr)
                   + SOURCE_WEIGHTS[2] * ntohs(front->udp.source)
                   + word_sum(header, HEADER_BYTES / WORD_BYTES + lanes, WORD_WEIGHTS);
    put_word(header + AT_CHECK, (uint32_t)(sum >> 32));
}

/* Reads a result that asks for something. Returns false for any other frame. */
static bool read_request(const struct parameters *p, const uint8_t *frame, uint32_t bytes,
                         struct request *request)
{
    const struct encapsulation *front = (const struct encapsulation *)frame;
    const uint8_t *header = frame + sizeof *front;
    const uint32_t before = sizeof *front + HEADER_BYTES;
    if (bytes < before)
        return false;
    /* Frames may be padded: there may be more bytes behind the datagram. */
    uint32_t used = sizeof front->ethernet + ntohs(front->ip.tot_len);
    if (used > bytes || used < before + WORD_BYTES * LEAST_LANES
        || used > before + WORD_BYTES * MAX_LANES || (used - before) % WORD_BYTES)
        return false;
    uint32_t flags = half_at(header + AT_FLAGS);
    if (!is_result(p, front) || !(flags & ASKS) || flags & (ASK_DONE | ASK_REFUSED))
        return false;
    *request = (struct request){
        .asks = flags & ASKS,
        .job = half_at(header + AT_JOB),
        .members = half_at(header + AT_COUNT),
        .operation = lower_nibble(header + AT_OPERATION),
        .overflowed = flags & FLAG_OVERFLOW,
        .lanes = (used - before) / WORD_BYTES,
    };
    load_row(header + HEADER_BYTES, (uint32_t *)request->lane, request->lanes);
    return true;
}

/* Writes the answer in place of the request. */
static void write_answer(uint8_t *frame, const struct request *answered, enum refusal refusal)
{
    const struct encapsulation *front = (const struct encapsulation *)frame;
    uint8_t *header = frame + sizeof *front;
    uint32_t flag = refusal == ACCEPTED ? ASK_DONE : ASK_REFUSED;
    put_half(header + AT_FLAGS, (uint16_t)(half_at(header + AT_FLAGS) | flag));
    store_row(header + HEADER_BYTES, (const uint32_t *)answered->lane, answered->lanes);
    seal(front, header, answered->lanes);
}

void parameters_on_egress(void *context, uint8_t *frame, uint32_t bytes)
{
    struct parameters *p = context;
    struct request request;
    if (!read_request(p, frame, bytes, &request))
        return;
    enum refusal refusal = answer(p, &request);
    if (refusal != ACCEPTED) {
        count(&p->counts.refused);
        memset(request.lane, 0, sizeof request.lane);
        request.lane[0] = (int32_t)refusal;
    }
    write_answer(frame, &request, refusal);
}

struct parameters *parameters_new(uint64_t most_bytes, uint64_t silent_ns)
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
    for (uint32_t i = 0; i < LOCKS; i++)
        pthread_mutex_init(&p->locks[i], NULL);
    return p;
}

void parameters_set_service(struct parameters *p, uint32_t address)
{
    atomic_store(&p->service, address);
}

void parameters_free(struct parameters *p)
{
    while (p->jobs)
        forget(p, &p->jobs);
    free(p);
}

const struct parameter_counts *parameters_counts(const struct parameters *p) { return &p->counts; }
