/* Copies of packets, packets that wait for another pass, and digests for the controller. runtime.h
 * includes this file. The switch's lock protects everything here. */

#ifndef INNET_REPLICATION_H
#define INNET_REPLICATION_H

/* A packet's state beside its headers and metadata. The session and list numbers are 0 if the program
 * did not ask for the effect. A session number has RT_ASKED set, because session 0 exists. */
struct path {
    u64 number;    /* of the frame, counted from 0: for the trace */
    u32 copy;      /* the number of this copy of the frame */
    u32 bytes;     /* its present size, as headers come and go */
    u32 max_bytes; /* the most to send, if it is `truncated` */
    u16 port;      /* the port that it came in at */
    u16 clone, clone_list;
    u16 resubmit, recirculate, digest;
    bool truncated;
};

enum { RT_ASKED = RT_MAX_SESSIONS };

struct replica { u32 port, instance; };

/* A multicast group, or a clone session. */
struct copies {
    u32 count;
    u32 max_bytes;        /* of a clone; 0 for all */
    u32 class_of_service; /* of a clone */
    struct replica replicas[];
};

/* A packet that waits for another pass: of the parser and the ingress, or, for a clone, of the egress. */
struct pending {
    u32 port;   /* the port that it came in at, or that it will leave from */
    u32 length; /* its size when it came in, which counters count */
    u32 bytes;  /* of data */
    void *phv;  /* belongs to the program */
    u8 *data;
};

enum rt_queue { RT_AGAIN, RT_CLONES, RT_QUEUES };

struct queue {
    struct pending *slots; /* a ring */
    u32 first, count;
};

struct replication {
    struct copies **groups, **sessions; /* by number */
    struct queue queues[RT_QUEUES];
    u8 *arena; /* the slots' headers and data */
    size_t arena_bytes;

    u8 *learned; /* a ring of samples: list, size, bytes */
    u32 learned_first, learned_bytes;
    u64 learned_lost;
    bool *learning;      /* whether somebody wants samples of the list */
    int learned_eventfd; /* or -1 */
    bool wake_reader;
};

struct sw;

/* NULL if the queue is full */
struct pending *rt_push(struct sw *sw, enum rt_queue which, u32 bytes); /* NULL if it is full */
void rt_learn(struct sw *sw, u32 list, const u8 *sample, u32 bytes);

/* The shortest of several truncations applies. */
static inline void rt_truncate(struct path *path, u64 bytes)
{
    if (!path->truncated || bytes < path->max_bytes)
        path->max_bytes = bytes < UINT32_MAX ? (u32)bytes : UINT32_MAX;
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
static inline void rt_cut(const struct path *path, u32 *head_bytes, u32 *rest_bytes)
{
    if (!path->truncated)
        return;
    if (*head_bytes > path->max_bytes)
        *head_bytes = path->max_bytes;
    if (*rest_bytes > path->max_bytes - *head_bytes)
        *rest_bytes = path->max_bytes - *head_bytes;
}

#endif
