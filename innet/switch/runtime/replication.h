/* Copies of packets, packets that wait for another pass, and digests for the controller. runtime.h
 * includes this file. The switch's lock protects everything here. */

#ifndef INNET_REPLICATION_H
#define INNET_REPLICATION_H

/* A packet's state beside its headers and metadata. The session and list numbers are 0 if the program
 * did not ask for the effect. A session number has RT_ASKED set, because session 0 exists. */
struct path {
    uint64_t number;    /* of the frame, counted from 0: for the trace */
    uint32_t copy;      /* the number of this copy of the frame */
    uint32_t bytes;     /* its present size, as headers come and go */
    uint32_t max_bytes; /* the most to send, if it is `truncated` */
    uint32_t partial;   /* the place of its partial checksum in the frame, or 0 */
    uint16_t field;     /* the number of the field that this checksum was extracted to, or 0 */
    uint16_t port;      /* the port that it came in at */
    uint16_t clone, clone_list;
    uint16_t resubmit, recirculate, digest;
    bool truncated;
};

enum { RT_ASKED = RT_MAX_SESSIONS };

struct replica { uint32_t port, instance; };

/* A multicast group, or a clone session. */
struct copies {
    uint32_t count;
    uint32_t max_bytes;        /* of a clone; 0 for all */
    uint32_t class_of_service; /* of a clone */
    struct replica replicas[];
};

/* A packet that waits for another pass: of the parser and the ingress, or, for a clone, of the egress. */
struct pending {
    uint32_t port;   /* the port that it came in at, or that it will leave from */
    uint32_t length; /* its size when it came in, which counters count */
    uint32_t bytes;  /* of data */
    void *phv;       /* belongs to the program */
    uint8_t *data;
};

enum rt_queue { RT_AGAIN, RT_CLONES, RT_QUEUES };

struct queue {
    struct pending *slots; /* a ring */
    uint32_t first, count;
};

struct replication {
    struct copies **groups, **sessions; /* by number */
    struct queue queues[RT_QUEUES];
    uint8_t *arena; /* the slots' headers and data */
    size_t arena_bytes;

    uint8_t *learned; /* a ring of samples: list, size, bytes */
    uint32_t learned_first, learned_bytes;
    uint64_t learned_lost;
    bool *learning;      /* whether somebody wants samples of the list */
    int learned_eventfd; /* or -1 */
    bool wake_reader;
};

struct sw;

/* Returns NULL if the queue is full, or if the packet has more than RT_MAX_FRAME bytes. */
struct pending *rt_push(struct sw *sw, enum rt_queue which, uint32_t bytes);
void rt_learn(struct sw *sw, uint32_t list, const uint8_t *sample, uint32_t bytes);

/* The shortest of several truncations applies. */
static inline void rt_truncate(struct path *path, uint64_t bytes)
{
    if (!path->truncated || bytes < path->max_bytes)
        path->max_bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    path->truncated = true;
}

/* Clears the state that a copy does not inherit. */
static inline void rt_freshen(struct path *path)
{
    path->max_bytes = 0;
    path->clone = path->clone_list = path->resubmit = path->recirculate = path->digest = 0;
    path->truncated = false;
}

/* Limits the sizes of a truncated packet. */
static inline void rt_cut(const struct path *path, uint32_t *head_bytes, uint32_t *rest_bytes)
{
    if (!path->truncated)
        return;
    if (*head_bytes > path->max_bytes)
        *head_bytes = path->max_bytes;
    if (*rest_bytes > path->max_bytes - *head_bytes)
        *rest_bytes = path->max_bytes - *head_bytes;
}

#endif
