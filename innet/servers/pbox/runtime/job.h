/* One job's part of one core: its chunks, its workers' pushes, and the replies due to them. A core owns
 * its jobs. No other thread touches them after they were handed over. */

#ifndef INNET_PBOX_JOB_H
#define INNET_PBOX_JOB_H

#include "pbox.h"

struct chunk {
    u64 offset;                    /* in floats, into every array of the job */
    u64 step;                      /* the number of updates so far */
    u64 since;                     /* arrival of the first push of this step, ns */
    double rate;                   /* the learning rate of that push */
    u64 pushed[MOST_WORKERS / 64]; /* the workers whose gradients wait to be aggregated */
    u32 length, arrived;
};

/* The core writes these while Python reads them. */
struct job_counts { u64 updates, late, stale, most_stale; };

struct connection;

struct job {
    u64 id;
    u32 workers, quorum; /* pushes per update; an asynchronous job ignores the quorum */
    bool asynchronous, mean, failed;
    struct optimizer optimizer;
    u64 patience;        /* ns */
    u32 chunks, waiting; /* `waiting` ones have a push */
    u32 gone_count;      /* the workers that have left */
    struct chunk *chunk;
    u64 floats, mapped_bytes;
    float *memory, *parameters, *state[2];
    float *pushed; /* one array of `floats` per worker */
    u8 (*keys)[KEY_BYTES];
    bool *gone;
    struct connection **seat; /* by rank; NULL before a worker has come and after it has left */
    struct job_counts *counts;
    struct job *next;
};

struct job *job_new(u64 id, u32 workers, u32 quorum, bool asynchronous, bool mean,
                    const struct optimizer *optimizer, double patience_s, u32 chunks,
                    const u32 *lengths, const u8 *keys, struct job_counts *counts);
void job_free(struct job *job);
u64 job_bytes(u32 workers, u32 rule, u32 chunks, const u32 *lengths);

static inline bool has_pushed(const struct chunk *chunk, u32 rank)
{
    return chunk->pushed[rank / 64] >> rank % 64 & 1;
}

/* Returns where a worker's gradient for a chunk is received. */
static inline float *landing(const struct job *job, u32 rank, const struct chunk *chunk)
{
    return job->pushed + rank * job->floats + chunk->offset;
}

#endif
