/* One running switch, as the runtime's own files see it, and what the program does with it in place.
 *
 * They stand on each other in this order: switch.c (lock and clock), tables.c, externs.c and
 * replication.c, and on top runtime.c (ports and the packet loop), which calls the program. */

#ifndef INNET_SWITCH_H
#define INNET_SWITCH_H

#include "runtime.h"

#include <pthread.h>
#include <time.h>

/* How frames cross a port's socket. */
enum port_kind { PORT_NONE, PORT_FRAMES, PORT_SEGMENTS };

struct port {
    int fd;
    enum port_kind kind;
    struct count in, out;
    u64 send_failures;
    int capture_in, capture_out; /* files, or -1 */
    /* Frames on their way out, back to back, all of `segment` bytes; the last may be shorter. */
    u8 *out_buffer;
    u32 out_bytes, out_frames, segment;
    bool queued;
};

struct sw {
    pthread_mutex_t lock;
    u32 waiting; /* control-plane calls that want the lock */
    struct table *tables;
    struct bundle **bundles; /* by id; NULL where there is none */
    u32 bundle_count;
    struct count **counters;
    struct replication replication;
    struct externs externs;
    void *state;
    u32 drop_port, priority_queues;
    u64 dropped[DROPS];
    u64 frame_number;
    u32 copy_number;
    u64 now; /* of the batch at hand, in ns */
    struct timespec started;

    outward *outward; /* NULL, or sees every frame before it leaves */
    void *outward_context;

    struct port ports[RT_MAX_PORTS];
    u32 dirty[RT_MAX_PORTS], dirty_count;
    int poller, waker;
    u8 *receive_buffer;
    u8 *nowhere; /* what has no port is written to */
};

/* For the program, as what runtime.h declares. */

/* What the table does when nothing matches. */
static inline struct entry *rt_miss(struct sw *sw, u32 table)
{
    sw->tables[table].misses++;
    return &sw->tables[table].miss;
}

/* As in BMv2, counting outside of the array has no effect. */
static inline void rt_count(struct sw *sw, u32 counter, u64 index, u32 length)
{
    if (index < program.counter_size[counter]) {
        sw->counters[counter][index].packets++;
        sw->counters[counter][index].bytes += length;
    }
}

static inline const struct copies *rt_group(struct sw *sw, u32 group)
{
    return group < RT_MOST_GROUPS ? sw->replication.groups[group] : NULL;
}

static inline const struct copies *rt_session(struct sw *sw, u32 session)
{
    return session < RT_MOST_SESSIONS ? sw->replication.sessions[session] : NULL;
}

static inline void rt_dropped(struct sw *sw, enum drop why) { sw->dropped[why]++; }

static inline u32 rt_drop_port(const struct sw *sw) { return sw->drop_port; }

static inline u32 rt_priority_queues(const struct sw *sw) { return sw->priority_queues; }

/* switch.c */
void switch_create(struct sw *sw);
void switch_destroy(struct sw *sw);
u64 now_ns(const struct sw *sw);
bool lock_wanted(const struct sw *sw);
void packet_lock(struct sw *sw);
void rt_hold(struct sw *sw);
void rt_release(struct sw *sw);

/* tables.c */
void tables_create(struct sw *sw);
void tables_destroy(struct sw *sw);
struct entry *find_entry(struct sw *sw, u32 table, u32 id); /* with ~0 the default one */

/* meters.c */
u32 meter_colour(struct meter *meter, u64 now_us, u64 input); /* of a packet that takes `input` tokens */
void configure_meter(struct meter *meter, const struct meter_config *config); /* NULL: none any more */

/* externs.c */
void externs_create(struct externs *externs);
void externs_destroy(struct externs *externs);

/* replication.c: the packet that comes next, or NULL, stays in its slot until it is finished; a flush
 * wakes who waits for digests, if there are new ones. */
void replication_create(struct replication *r);
void replication_destroy(struct replication *r);
struct pending *replication_next(struct replication *r, enum rt_queue which);
void replication_finish(struct replication *r, enum rt_queue which);
void replication_flush(struct replication *r);

/* capture.c */
void capture_frame(int file, const u8 *frame, u32 bytes);

#endif
