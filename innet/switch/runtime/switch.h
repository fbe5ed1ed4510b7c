/* One core of a running switch, for the runtime's own files and for the program's inline calls.
 *
 * The files depend on each other in this order: memory.c, switch.c (lock and clock), tables.c,
 * externs.c, replication.c, cables.c, xdp.c, superframes.c, cores.c, sending.c, receiving.c, and on top runtime.c (ports
 * and the packet loop). receiving.c calls the program, and the program calls the files in front of it. */

#ifndef INNET_SWITCH_H
#define INNET_SWITCH_H

#include "ring.h"
#include "runtime.h"
#include "superframes.h"
#include "xdp.h"

#include <pthread.h>
#include <time.h>

/* A core's end of a cable in shared memory. */
struct shared_cable {
    struct cable *memory; /* NULL while no worker is connected */
    int peer, wakeup;     /* the connection, which the first core uses; the eventfd of this end */
    struct ring_reader in;
    struct ring_writer out;
};

enum { TRAINS_ROOM = 2 << 16 }; /* the bytes of frames that wait for super-frames */
enum { MOST_WAITING = 256 };    /* the most frames that wait in a port for super-frames */

/* The frames of a port for super-frames, in trains. */
struct trains {
    char interface[16];
    uint32_t mtu; /* when the first of them came */
    uint32_t end; /* of the last frame in the buffer */
    uint32_t count;
    uint32_t at[MOST_WAITING], bytes[MOST_WAITING]; /* each frame in the buffer */
    struct train trains[MOST_WAITING];
};

struct port {
    int fd;              /* for a cable in shared memory: the listening socket */
    enum port_kind kind; /* 0 if there is no such port */
    struct count in, out;
    uint64_t send_failures;
    int capture_in, capture_out; /* files, or -1 */
    /* Frames to be sent, back to back, all of `segment` bytes. The last one may be shorter. */
    uint8_t *out_buffer;
    uint32_t out_bytes, out_frames, segment;
    uint32_t depth; /* of the kernel's queue, when the first of them came */
    bool queued;    /* the port is in the list of dirty ports */
    uint8_t *room;  /* for the next frame: in the buffer, the cable or XDP's memory; NULL if none */
    struct shared_cable cable;
    struct trains *trains; /* for super-frames; else NULL */
    struct xdp_port *xdp;  /* NULL if the interface has none */
    bool direct;           /* the room is in memory shared with XDP */
};

/* The memory of one frame. The 17 additional cache lines keep the places from all starting at the same
 * set of the cache. */
enum { FRAME_PLACE = RT_MAX_FRAME + 17 * CACHE_LINE };
enum { RECEIVE_BATCH = 16 }; /* the most frames that one system call receives */

struct handover; /* cores.h */

struct sw {
    pthread_mutex_t lock;
    uint32_t waiting; /* control-plane calls that wait for the lock */
    struct table *tables;
    struct bundle **bundles; /* by id; NULL for unused ids */
    uint32_t bundle_count;
    struct count **counters;
    struct replication replication;
    struct externs externs;
    void *state;
    uint32_t drop_port, priority_queues;
    uint64_t dropped[DROPS];
    struct partial arrived; /* the checksum of the frame that is being processed */
    struct partial leaving; /* and of the one that leaves next */
    uint64_t frame_number;
    uint32_t copy_number;
    uint64_t now; /* the time of the present batch, in ns */
    struct timespec started;

    egress_hook *egress_hook; /* NULL, or called for every frame before it leaves */
    void *egress_hook_context;

    struct port ports[RT_MAX_PORTS];
    uint32_t dirty[RT_MAX_PORTS], dirty_count;   /* the ports with frames to be sent */
    uint32_t shared[RT_MAX_PORTS], shared_count; /* the ports with cables in shared memory */
    uint32_t xdp[RT_MAX_PORTS], xdp_count;       /* the ports with AF_XDP sockets */
    uint32_t passes;         /* that packets may still take before further frames are received */
    int poller, waker;       /* epoll, and the eventfd that ends the packet loop */
    uint8_t *receive_buffer; /* RECEIVE_BATCH places of FRAME_PLACE bytes */
    uint8_t *nowhere;        /* takes frames that cannot be sent: no such port, too long, no room */

    uint32_t core, cores; /* the number of this core, and of all cores */
    struct sw *peers[RT_MAX_CORES];
    struct handover *to[RT_MAX_CORES]; /* frames for another core */
    uint32_t asleep;                   /* other cores have to wake this one */
    int bell;                          /* the eventfd that wakes this core */
};

/* Called by the program, like the functions of runtime.h. */

/* Counts a miss, and returns the table's default entry. */
static inline struct entry *rt_miss(struct sw *sw, uint32_t table)
{
    sw->tables[table].misses++;
    return &sw->tables[table].miss;
}

/* As in BMv2, counting outside of the array has no effect. */
static inline void rt_count(struct sw *sw, uint32_t counter, uint64_t index, uint32_t length)
{
    if (index < program.counter_size[counter]) {
        sw->counters[counter][index].packets++;
        sw->counters[counter][index].bytes += length;
    }
}

static inline const struct copies *rt_group(struct sw *sw, uint32_t group)
{
    return group < RT_MAX_GROUPS ? sw->replication.groups[group] : NULL;
}

static inline const struct copies *rt_session(struct sw *sw, uint32_t session)
{
    return session < RT_MAX_SESSIONS ? sw->replication.sessions[session] : NULL;
}

static inline void rt_fetch(const void *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const char *)memory + at, 1);
}

static inline void rt_dropped(struct sw *sw, uint32_t why) { sw->dropped[why]++; }

static inline uint32_t rt_drop_port(const struct sw *sw) { return sw->drop_port; }

static inline uint32_t rt_priority_queues(const struct sw *sw) { return sw->priority_queues; }

static inline void add_count(struct count *to, const struct count *count)
{
    to->packets += count->packets;
    to->bytes += count->bytes;
}

/* switch.c */
void switch_create(struct sw *sw);
void switch_destroy(struct sw *sw);
uint64_t now_ns(const struct sw *sw);
bool lock_wanted(const struct sw *sw);
void packet_lock(struct sw *sw);
void rt_hold(struct sw *sw);
void rt_release(struct sw *sw);

/* memory.c */
void *zeroed(size_t count, size_t bytes);
void *needed(void *memory);
void *resized(void *memory, size_t count, size_t bytes);
void *pages(size_t bytes);
void free_pages(void *memory, size_t bytes);

/* tables.c. Here and below, a create function returns false if memory is short. The destroy function
 * then frees what was created. */
bool tables_create(struct sw *sw);
void tables_destroy(struct sw *sw);
struct entry *find_entry(struct sw *sw, uint32_t table,
                         uint32_t id); /* or the default action, for RT_MISS */

/* meters.c */
uint32_t meter_colour(struct meter *meter, uint64_t now_us,
                      uint64_t input); /* the packet takes `input` tokens */
/* Without a configuration the meter marks everything green. */
void configure_meter(struct meter *meter, const struct meter_config *config);

/* externs.c */
bool externs_create(struct externs *externs);
void externs_destroy(struct externs *externs);

/* replication.c: replication_next returns the next packet, or NULL. The packet stays in its slot until
 * it is finished. A flush wakes the reader of digests if there are new ones. */
bool replication_create(struct replication *r);
void replication_destroy(struct replication *r);
struct pending *replication_next(struct replication *r, enum rt_queue which);
void replication_finish(struct replication *r, enum rt_queue which);
void replication_flush(struct replication *r);

/* capture.c */
void capture_frame(int file, const uint8_t *frame, uint32_t bytes);

#endif
