#include "job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNED = 16 }; /* floats, one cache line */

static uint64_t padded(uint32_t length)
{
    return ((uint64_t)length + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static uint64_t arrays(uint32_t workers, uint32_t rule) { return 1 + state_count(rule) + workers; }

uint64_t job_bytes(uint32_t workers, uint32_t rule, uint32_t chunks, const uint32_t *lengths)
{
    uint64_t floats = 0;
    for (uint32_t i = 0; i < chunks; i++)
        floats += padded(lengths[i]);
    uint64_t table = sizeof(struct chunk) + workers * 2 * sizeof(struct reply);
    return floats * arrays(workers, rule) * sizeof(float) + chunks * table;
}

/* The pages are mapped here, but the core that owns them touches them first. So they lie in that
 * core's NUMA domain. Returns NULL if there is no memory. */
struct job *job_new(uint64_t id, uint32_t workers, uint32_t quorum, bool asynchronous, bool mean,
                    const struct optimizer *optimizer, double timeout_s, uint32_t chunks,
                    const uint32_t *lengths, const uint8_t *keys, struct job_counts *counts)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    *job = (struct job){
        .id = id,
        .workers = workers,
        .quorum = quorum,
        .asynchronous = asynchronous,
        .mean = mean,
        .optimizer = *optimizer,
        .timeout_ns = (uint64_t)(timeout_s * 1e9),
        .chunks = chunks,
        .counts = counts,
    };
    job->chunk = calloc(chunks + 1, sizeof *job->chunk);
    job->keys = malloc(workers * sizeof *job->keys);
    job->departed = calloc(workers, sizeof *job->departed);
    job->connection = calloc(workers, sizeof *job->connection);
    if (job->chunk)
        for (uint32_t i = 0; i < chunks; i++) {
            job->chunk[i].offset = job->floats;
            job->chunk[i].length = lengths[i];
            job->floats += padded(lengths[i]);
        }
    job->mapped_bytes = job->floats * arrays(workers, optimizer->rule) * sizeof(float) + 1;
    void *memory =
        mmap(NULL, job->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    job->memory = memory == MAP_FAILED ? NULL : memory;
    if (!job->chunk || !job->keys || !job->departed || !job->connection || !job->memory) {
        job_free(job);
        return NULL;
    }
    memcpy(job->keys, keys, workers * sizeof *job->keys);
    job->parameters = job->memory;
    for (uint32_t i = 0; i < state_count(optimizer->rule); i++)
        job->state[i] = job->memory + (1 + i) * job->floats;
    job->gradients = job->memory + (1 + state_count(optimizer->rule)) * job->floats;
    return job;
}

void job_free(struct job *job)
{
    if (job->memory)
        munmap(job->memory, job->mapped_bytes);
    free(job->chunk);
    free(job->keys);
    free(job->departed);
    free(job->connection);
    free(job);
}
