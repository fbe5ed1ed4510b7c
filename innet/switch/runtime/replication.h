/* Copies of packets, packets that take their way again, and what packets tell the controller. Included
 * by runtime.h. Everything here is reached under the switch's lock. */

#ifndef INNET_REPLICATION_H
#define INNET_REPLICATION_H

/* What a packet carries beside its headers and metadata. Session and list numbers are 0 if what they are
 * for was not asked for; a session's has RT_ASKED set, for session 0 is one. */
struct path {
    u64 number;      /* of the frame that it was, counted from 0: for the trace */
    u32 copy;        /* which copy of that frame */
    u32 bytes;       /* its size as headers come and go */
    u32 most_bytes;  /* to send, if it is `truncated` */
    u16 port;        /* where it came in */
    u16 clone, clone_list;
    u16 resubmit, recirculate, digest;
    bool truncated;
};

enum { RT_ASKED = 0x8000, RT_MOST_SESSIONS = 0x8000, RT_MOST_GROUPS = 0x10000 };

struct replica { u32 port, instance; };

/* A multicast group, or a clone session. */
struct copies {
    u32 count;
    u32 most_bytes;       /* of a clone; 0 for all */
    u32 class_of_service; /* of a clone */
    struct replica replicas[];
};

/* A packet on its way to another pass: of the parser and the ingress, or, as a clone, of the egress. */
struct pending {
    u32 port;   /* where it came in; where it will go out */
    u32 length; /* bytes that it had when it came in, which is what counters count */
    u32 bytes;  /* of data */
    void *phv;  /* the program's */
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
    bool *learning; /* whether somebody listens to the list */
    int learned_bell;
    bool ring_bell;
};

struct sw;

/* For the program. */
struct pending *rt_push(struct sw *sw, enum rt_queue which, u32 bytes); /* NULL if it is full */
void rt_learn(struct sw *sw, u32 list, const u8 *sample, u32 bytes);

/* Of several truncations the shortest holds. */
static inline void rt_truncate(struct path *path, u64 bytes)
{
    if (!path->truncated || bytes < path->most_bytes)
        path->most_bytes = bytes < UINT32_MAX ? (u32)bytes : UINT32_MAX;
    path->truncated = true;
}

/* What a copy does not inherit. */
static inline void rt_freshen(struct path *path)
{
    path->most_bytes = 0;
    path->clone = path->clone_list = path->resubmit = path->recirculate = path->digest = 0;
    path->truncated = false;
}

/* What is sent of a packet. */
static inline void rt_cut(const struct path *path, u32 *head_bytes, u32 *rest_bytes)
{
    if (!path->truncated)
        return;
    if (*head_bytes > path->most_bytes)
        *head_bytes = path->most_bytes;
    if (*rest_bytes > path->most_bytes - *head_bytes)
        *rest_bytes = path->most_bytes - *head_bytes;
}

#endif
