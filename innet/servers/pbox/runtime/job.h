/* One job's part of one core: its chunks, its workers' pushes, and the replies due to them. A core owns
 * its jobs. No other thread touches them after they were handed over. */

#ifndef INNET_PBOX_JOB_H
#define INNET_PBOX_JOB_H

#include "pbox.h"

struct chunk {
    uint64_t offset;                    /* in floats, into every array of the job */
    uint64_t step;                      /* the number of updates so far */
    uint64_t since;                     /* arrival of the first push of this step, in ns */
    double rate;                        /* the learning rate of that push */
    uint64_t pushed[MOST_WORKERS / 64]; /* the workers whose gradients wait to be aggregated */
    uint32_t length;                    /* in floats */
    uint32_t arrived;                   /* the number of workers in `pushed` */
};

/* A chunk that is to be sent to a worker. It is bare, without its values, if it only confirms that the
 * chunk was stored. */
struct reply {
    uint64_t step;
    uint32_t chunk;
    bool bare;
};

/* The core writes these while Python reads them. */
struct job_counts { uint64_t updates, late, stale, most_stale; };

struct connection;

struct job {
    uint64_t id;
    uint32_t workers, quorum; /* `quorum`: pushes per update, unless the job is asynchronous */
    bool asynchronous, mean, failed;
    struct optimizer optimizer;
    uint64_t timeout_ns;      /* how long one worker may keep the others waiting */
    uint32_t chunks, waiting; /* `waiting`: those with a push */
    uint32_t departed_count;  /* the workers that have left */
    struct chunk *chunk;
    uint64_t floats, mapped_bytes;
    float *memory; /* the pages of all arrays of `floats` */
    float *parameters;
    float *state[2];  /* NULL for a state that the rule does not have */
    float *gradients; /* one array of `floats` per worker */
    uint8_t (*keys)[KEY_BYTES];
    bool *departed;
    struct connection **connection; /* by rank; NULL if the worker is not there */
    struct job_counts *counts;
    struct job *next;
};

/* `lengths`: the floats of each chunk. `keys`: KEY_BYTES for each worker. */
struct job *job_new(uint64_t id, uint32_t workers, uint32_t quorum, bool asynchronous, bool mean,
                    const struct optimizer *optimizer, double timeout_s, uint32_t chunks,
                    const uint32_t *lengths, const uint8_t *keys, struct job_counts *counts);
void job_free(struct job *job);
uint64_t job_bytes(uint32_t workers, uint32_t rule, uint32_t chunks, const uint32_t *lengths);

/* Returns whether every step waits for all workers. Else a chunk may be updated while a worker is behind. */
static inline bool waits_for_all(const struct job *job)
{
    return !job->asynchronous && job->quorum == job->workers;
}

static inline bool has_pushed(const struct chunk *chunk, uint32_t rank)
{
    return chunk->pushed[rank / 64] >> rank % 64 & 1;
}

/* Returns where a worker's gradient for a chunk is received. */
static inline float *gradient_of(const struct job *job, uint32_t rank, const struct chunk *chunk)
{
    return job->gradients + rank * job->floats + chunk->offset;
}

#endif
