/* Tables, counters, multicast groups, ports and the packet loop.
 *
 * One thread runs packets; it holds `lock` for a batch of them. Control-plane calls take the same
 * lock, so a lookup never sees half a change and no packet is lost for one. Nothing is allocated for
 * a packet. */

#define _GNU_SOURCE
#include "runtime.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

enum { RECEIVE_BATCH = 16, BATCHES_PER_TURN = 4, MOST_SEGMENTS = 64, MOST_BYTES = 65000 };
enum { MAC_ADDRESSES = 12, VLAN_TAG = 4 };
enum { PASSES = 1024 }; /* that packets may take again while the lock is held */

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

    struct port ports[RT_MAX_PORTS];
    u32 dirty[RT_MAX_PORTS], dirty_count;
    int poller, waker;
    u8 *receive_buffer;
};

/* ---- creation ---------------------------------------------------------------------------------- */

struct sw *rt_create(u32 drop_port)
{
    struct sw *sw = calloc(1, sizeof *sw);
    pthread_mutexattr_t recursive; /* for rt_hold */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&sw->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    clock_gettime(CLOCK_MONOTONIC, &sw->started);
    sw->drop_port = drop_port;
    sw->priority_queues = 1;
    replication_create(&sw->replication);
    externs_create(&sw->externs);
    sw->tables = calloc(program.tables + 1, sizeof *sw->tables);
    for (u32 i = 0; i < program.tables; i++) {
        sw->tables[i].key_bytes = program.key_bytes[i];
        sw->tables[i].miss.action = program.default_action[i];
        sw->tables[i].miss.args = calloc(1, sizeof(u64));
    }
    sw->counters = calloc(program.counters + 1, sizeof *sw->counters);
    for (u32 i = 0; i < program.counters; i++)
        sw->counters[i] = calloc(program.counter_size[i] + 1, sizeof **sw->counters);
    sw->state = aligned_alloc(64, (program.state_bytes + 127) / 64 * 64);
    memset(sw->state, 0, (program.state_bytes + 127) / 64 * 64);
    sw->receive_buffer = malloc((size_t)RECEIVE_BATCH * RT_MAX_FRAME);
    sw->poller = epoll_create1(EPOLL_CLOEXEC);
    sw->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = RT_MAX_PORTS};
    epoll_ctl(sw->poller, EPOLL_CTL_ADD, sw->waker, &event);
    return sw;
}

static void free_entry(struct entry *entry)
{
    free(entry->args);
    free(entry->meter);
    free(entry->key);
    free(entry);
}

static void clear_table(struct table *table)
{
    for (u32 i = 0; i < table->ids; i++)
        if (table->by_id[i])
            free_entry(table->by_id[i]);
    for (u32 i = 0; i < table->group_count; i++) {
        free(table->groups[i].bucket);
        free(table->groups[i].mask);
    }
    free(table->by_id);
    free(table->groups);
    free(table->miss.args);
}

/* The caller owns the ports' file descriptors, and has stopped the loop. */
void rt_destroy(struct sw *sw)
{
    for (u32 i = 0; i < program.tables; i++)
        clear_table(&sw->tables[i]);
    for (u32 i = 0; i < program.counters; i++)
        free(sw->counters[i]);
    for (u32 i = 0; i < RT_MAX_PORTS; i++)
        free(sw->ports[i].out_buffer);
    replication_destroy(&sw->replication);
    externs_destroy(&sw->externs);
    close(sw->poller);
    close(sw->waker);
    free(sw->tables);
    free(sw->counters);
    free(sw->state);
    free(sw->receive_buffer);
    pthread_mutex_destroy(&sw->lock);
    free(sw);
}

static u64 now_ns(const struct sw *sw)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)((now.tv_sec - sw->started.tv_sec) * 1000000000 + now.tv_nsec
                 - sw->started.tv_nsec);
}

u64 rt_now_us(const struct sw *sw) { return now_ns(sw) / 1000; }

/* A mutex goes to whoever comes first, which under load is the packet loop: it looks here whether
 * somebody else waits. */
static void control_lock(struct sw *sw)
{
    __atomic_add_fetch(&sw->waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&sw->lock);
    __atomic_sub_fetch(&sw->waiting, 1, __ATOMIC_RELAXED);
}

static void packet_lock(struct sw *sw)
{
    while (__atomic_load_n(&sw->waiting, __ATOMIC_RELAXED))
        sched_yield();
    pthread_mutex_lock(&sw->lock);
}

/* Between these two, no packet is processed, and all changes made are one to the packets. */
void rt_hold(struct sw *sw) { control_lock(sw); }
void rt_release(struct sw *sw) { pthread_mutex_unlock(&sw->lock); }

const u32 *rt_drop_port(const struct sw *sw) { return &sw->drop_port; }

u32 rt_priority_queues(const struct sw *sw) { return sw->priority_queues; }

void rt_set_priority_queues(struct sw *sw, u32 queues) { sw->priority_queues = queues; }

/* Frames are counted from 0, and the copies of each from 1. Only a program that traces asks. */
u64 rt_frame_number(struct sw *sw)
{
    sw->copy_number = 0;
    return sw->frame_number++;
}

u32 rt_copy_number(struct sw *sw) { return ++sw->copy_number; }

struct replication *rt_replication(struct sw *sw) { return &sw->replication; }

struct externs *rt_externs(struct sw *sw) { return &sw->externs; }

struct entry *rt_entry(struct sw *sw, u32 table, u32 id)
{
    return id == ~0u ? &sw->tables[table].miss : sw->tables[table].by_id[id];
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Keys are padded with zeros to whole 64-bit words. */
static u32 hash_key(const u8 *key, const u8 *mask, u32 bytes)
{
    u64 hash = 0x9e3779b97f4a7c15u;
    for (u32 i = 0; i < bytes; i += 8) {
        u64 word, keep;
        memcpy(&word, key + i, 8);
        memcpy(&keep, mask + i, 8);
        hash = (hash ^ (word & keep)) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return (u32)hash;
}

static bool same_key(const struct entry *entry, const u8 *key, const u8 *mask, u32 bytes)
{
    for (u32 i = 0; i < bytes; i += 8) {
        u64 word, keep, wanted;
        memcpy(&word, key + i, 8);
        memcpy(&keep, mask + i, 8);
        memcpy(&wanted, entry->key + i, 8);
        if ((word & keep) != wanted)
            return false;
    }
    return true;
}

static u128 component(const u8 *key, const struct span *span)
{
    u128 value = 0;
    memcpy(&value, key + span->first, span->bytes);
    return value;
}

/* Whether all components that are matched by a range lie in the entry's. */
static bool in_bounds(const struct entry *entry, const u8 *key, const struct span *spans, u32 count)
{
    for (u32 i = 0; i < count; i++) {
        u128 value = component(key, &spans[i]);
        if (value < component(entry->low, &spans[i]) || value > component(entry->high, &spans[i]))
            return false;
    }
    return true;
}

/* The matching entry of highest priority, or NULL. Of equal ones it is the one of the lowest id. */
struct entry *rt_lookup(struct sw *sw, u32 table_id, const u8 *key)
{
    struct table *table = &sw->tables[table_id];
    const struct span *spans = layout.spans[table_id];
    u32 span_count = layout.span_count[table_id];
    struct entry *best = NULL;
    for (u32 i = 0; i < table->group_count; i++) {
        struct group *group = &table->groups[i];
        if (best && best->priority > group->top_priority)
            break; /* groups are in order of their best entry */
        u32 hash = hash_key(key, group->mask, table->key_bytes);
        for (struct entry *e = group->bucket[hash & (group->buckets - 1)]; e; e = e->next)
            if (e->hash == hash && same_key(e, key, group->mask, table->key_bytes)
                && in_bounds(e, key, spans, span_count)
                && (!best || e->priority > best->priority
                    || (e->priority == best->priority && e->id < best->id)))
                best = e;
    }
    if (best) {
        best->last_hit = sw->now;
        table->hits++;
    }
    return best;
}

/* What the table does when nothing matches. */
struct entry *rt_miss(struct sw *sw, u32 table)
{
    sw->tables[table].misses++;
    return &sw->tables[table].miss;
}

static void link_entry(struct group *group, struct entry *entry)
{
    struct entry **bucket = &group->bucket[entry->hash & (group->buckets - 1)];
    entry->next = *bucket;
    *bucket = entry;
}

static void grow_group(struct group *group)
{
    u32 old = group->buckets;
    struct entry **bucket = group->bucket;
    group->buckets = old ? old * 2 : 4;
    group->bucket = calloc(group->buckets, sizeof *group->bucket);
    for (u32 i = 0; i < old; i++)
        for (struct entry *e = bucket[i], *next; e; e = next) {
            next = e->next;
            link_entry(group, e);
        }
    free(bucket);
}

static int by_top_priority(const void *a, const void *b)
{
    u32 left = ((const struct group *)a)->top_priority, right = ((const struct group *)b)->top_priority;
    return left < right ? 1 : left > right ? -1 : 0;
}

static struct group *find_group(struct table *table, const u8 *mask)
{
    for (u32 i = 0; i < table->group_count; i++)
        if (!memcmp(table->groups[i].mask, mask, table->key_bytes))
            return &table->groups[i];
    table->groups = realloc(table->groups, (table->group_count + 1) * sizeof *table->groups);
    struct group *group = &table->groups[table->group_count++];
    *group = (struct group){.mask = malloc(table->key_bytes + 1)};
    memcpy(group->mask, mask, table->key_bytes);
    return group;
}

static u32 free_id(struct table *table)
{
    for (u32 i = 0; i < table->ids; i++)
        if (!table->by_id[i])
            return i;
    u32 old = table->ids;
    table->ids = old ? old * 2 : 8;
    table->by_id = realloc(table->by_id, table->ids * sizeof *table->by_id);
    memset(table->by_id + old, 0, (table->ids - old) * sizeof *table->by_id);
    return old;
}

static u64 *copy_args(const u64 *args, u32 words)
{
    u64 *copy = calloc(words + 1, sizeof *copy);
    memcpy(copy, args, words * sizeof *copy);
    return copy;
}

/* Keys and masks have the table's key_bytes; where its spans are, they are lower and upper bounds. */
static void set_key(struct entry *entry, u32 table, const u8 *key, const u8 *mask)
{
    u32 bytes = program.key_bytes[table];
    entry->key = malloc(bytes * 4 + 1);
    entry->mask = entry->key + bytes;
    entry->low = entry->mask + bytes;
    entry->high = entry->low + bytes;
    memcpy(entry->low, key, bytes);
    memcpy(entry->high, mask, bytes);
    memcpy(entry->mask, mask, bytes);
    for (u32 i = 0; i < layout.span_count[table]; i++)
        memset(entry->mask + layout.spans[table][i].first, 0, layout.spans[table][i].bytes);
    for (u32 i = 0; i < bytes; i++)
        entry->key[i] = key[i] & entry->mask[i];
    entry->hash = hash_key(key, entry->mask, bytes);
}

/* Returns the new entry's id. In a table with a profile it is the bundle, not the action, that counts;
 * otherwise the bundle is ~0. */
u32 rt_insert(struct sw *sw, u32 table_id, const u8 *key, const u8 *mask, u32 priority, u32 action,
              const u64 *args, u32 words, u32 bundle)
{
    control_lock(sw);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = calloc(1, sizeof *entry);
    set_key(entry, table_id, key, mask);
    entry->bundle = find_bundle(&sw->externs, bundle);
    entry->action = action;
    entry->priority = priority;
    entry->args = copy_args(args, words);
    entry->last_hit = now_ns(sw);
    entry->id = free_id(table);
    table->by_id[entry->id] = entry;
    struct group *group = find_group(table, entry->mask);
    if (group->used == group->buckets)
        grow_group(group);
    group->used++;
    link_entry(group, entry);
    if (priority > group->top_priority)
        group->top_priority = priority;
    qsort(table->groups, table->group_count, sizeof *table->groups, by_top_priority);
    pthread_mutex_unlock(&sw->lock);
    return entry->id;
}

static void drop_group(struct table *table, struct group *group)
{
    free(group->bucket);
    free(group->mask);
    size_t after = (size_t)(table->groups + table->group_count - (group + 1));
    memmove(group, group + 1, after * sizeof *group);
    table->group_count--;
}

void rt_remove(struct sw *sw, u32 table_id, u32 id)
{
    control_lock(sw);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = table->by_id[id];
    struct group *group = find_group(table, entry->mask);
    struct entry **link = &group->bucket[entry->hash & (group->buckets - 1)];
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    table->by_id[id] = NULL;
    free_entry(entry);
    if (--group->used == 0)
        drop_group(table, group);
    pthread_mutex_unlock(&sw->lock);
}

/* `id` is an entry's, or ~0 for what happens on a miss. */
void rt_set_action(struct sw *sw, u32 table, u32 id, u32 action, const u64 *args, u32 words,
                   u32 bundle)
{
    control_lock(sw);
    struct entry *entry = rt_entry(sw, table, id);
    free(entry->args);
    entry->bundle = find_bundle(&sw->externs, bundle);
    entry->action = action;
    entry->args = copy_args(args, words);
    pthread_mutex_unlock(&sw->lock);
}

static void exchange_count(struct sw *sw, struct count *count, struct count *with, bool set)
{
    control_lock(sw);
    if (set)
        *count = *with;
    else
        *with = *count;
    pthread_mutex_unlock(&sw->lock);
}

void rt_entry_count(struct sw *sw, u32 table_id, u32 id, struct count *with, bool set)
{
    struct table *table = &sw->tables[table_id];
    exchange_count(sw, id == ~0u ? &table->miss.hits : &table->by_id[id]->hits, with, set);
}

void rt_counter(struct sw *sw, u32 counter, u32 index, struct count *with, bool set)
{
    exchange_count(sw, &sw->counters[counter][index], with, set);
}

/* Nanoseconds since a packet matched the entry last, or since it was made. */
u64 rt_entry_idle(struct sw *sw, u32 table, u32 id)
{
    control_lock(sw);
    u64 now = now_ns(sw), last = sw->tables[table].by_id[id]->last_hit;
    pthread_mutex_unlock(&sw->lock);
    return now > last ? now - last : 0;
}

struct table_counts { u64 hits, misses; };

void rt_table_counts(struct sw *sw, u32 table, struct table_counts *counts)
{
    control_lock(sw);
    *counts = (struct table_counts){sw->tables[table].hits, sw->tables[table].misses};
    pthread_mutex_unlock(&sw->lock);
}

u32 rt_register_bytes(u32 number) { return program.registers[number].bytes; }

/* Reads or sets cells of a register, little-endian as in memory. */
void rt_register(struct sw *sw, u32 number, u32 first, u32 count, u8 *values, bool set)
{
    const struct cells *cells = &program.registers[number];
    u8 *at = (u8 *)sw->state + cells->first + first * cells->stride;
    control_lock(sw);
    for (u32 i = 0; i < count; i++, at += cells->stride, values += cells->bytes)
        if (set)
            memcpy(at, values, cells->bytes);
        else
            memcpy(values, at, cells->bytes);
    pthread_mutex_unlock(&sw->lock);
}

/* As in BMv2, counting outside of the array has no effect. */
void rt_count(struct sw *sw, u32 counter, u64 index, u32 length)
{
    if (index < program.counter_size[counter]) {
        sw->counters[counter][index].packets++;
        sw->counters[counter][index].bytes += length;
    }
}

/* ---- sending ----------------------------------------------------------------------------------- */

static void not_sent(struct port *port, u32 frames, u32 bytes)
{
    port->send_failures += frames;
    port->out.packets -= frames;
    port->out.bytes -= bytes;
}

static void send_segments(struct port *port)
{
    char control[CMSG_SPACE(sizeof(u16))] = {0};
    struct iovec vector = {port->out_buffer, port->out_bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (port->out_frames > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_UDP;
        header->cmsg_type = UDP_SEGMENT;
        header->cmsg_len = CMSG_LEN(sizeof(u16));
        u16 segment = (u16)port->segment;
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
    }
    /* A refusal that an earlier packet met says nothing about this one: try once more. */
    if (sendmsg(port->fd, &message, MSG_DONTWAIT) < 0 && (errno != ECONNREFUSED || sendmsg(port->fd, &message, MSG_DONTWAIT) < 0))
        not_sent(port, port->out_frames, port->out_bytes);
}

static void send_frames(struct port *port)
{
    struct mmsghdr messages[MOST_SEGMENTS];
    struct iovec vectors[MOST_SEGMENTS];
    u32 left = port->out_bytes;
    for (u32 i = 0; i < port->out_frames; i++) {
        u32 size = left < port->segment ? left : port->segment;
        vectors[i] = (struct iovec){port->out_buffer + (size_t)i * port->segment, size};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
        left -= size;
    }
    for (u32 sent = 0; sent < port->out_frames;) {
        int n = sendmmsg(port->fd, messages + sent, port->out_frames - sent, MSG_DONTWAIT);
        if (n <= 0) { /* the frame that failed is lost, as on a wire; the others go on */
            not_sent(port, 1, (u32)vectors[sent].iov_len);
            n = 1;
        }
        sent += (u32)n;
    }
}

static void flush_port(struct port *port)
{
    if (!port->out_frames)
        return;
    port->out.packets += port->out_frames;
    port->out.bytes += port->out_bytes;
    if (port->kind == PORT_SEGMENTS)
        send_segments(port);
    else
        send_frames(port);
    port->out_frames = port->out_bytes = 0;
}

static void flush_all(struct sw *sw)
{
    for (u32 i = 0; i < sw->dirty_count; i++) {
        struct port *port = &sw->ports[sw->dirty[i]];
        flush_port(port);
        port->queued = false;
    }
    sw->dirty_count = 0;
    replication_flush(&sw->replication);
}

/* A frame joins those that wait if all of them, but perhaps the last, have the same size. */
static bool fits(const struct port *port, u32 bytes)
{
    return port->segment && port->out_frames < MOST_SEGMENTS && port->out_bytes + bytes <= MOST_BYTES
        && bytes <= port->segment && port->out_bytes == port->out_frames * port->segment;
}

void rt_dropped(struct sw *sw, enum drop why) { sw->dropped[why]++; }

void rt_drops(struct sw *sw, u64 *counts, u32 reasons)
{
    control_lock(sw);
    for (u32 i = 0; i < reasons && i < DROPS; i++)
        counts[i] = sw->dropped[i];
    pthread_mutex_unlock(&sw->lock);
}

void rt_emit(struct sw *sw, u32 number, const u8 *head, u32 head_bytes, const u8 *rest, u32 rest_bytes)
{
    u32 bytes = head_bytes + rest_bytes;
    if (number >= RT_MAX_PORTS || sw->ports[number].kind == PORT_NONE) {
        rt_dropped(sw, DROP_NO_PORT);
        return;
    }
    if (bytes > RT_MAX_FRAME) {
        rt_dropped(sw, DROP_TOO_LONG);
        return;
    }
    struct port *port = &sw->ports[number];
    if (port->out_frames && !fits(port, bytes))
        flush_port(port);
    if (!port->out_frames)
        port->segment = bytes;
    memcpy(port->out_buffer + port->out_bytes, head, head_bytes);
    memcpy(port->out_buffer + port->out_bytes + head_bytes, rest, rest_bytes);
    if (port->capture_out >= 0)
        capture_frame(port->capture_out, port->out_buffer + port->out_bytes, bytes);
    port->out_bytes += bytes;
    port->out_frames++;
    if (!port->queued) {
        port->queued = true;
        sw->dirty[sw->dirty_count++] = number;
    }
}

/* ---- receiving --------------------------------------------------------------------------------- */

static bool find_control(struct msghdr *message, int level, int type, void *data, size_t bytes)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == level && c->cmsg_type == type) {
            memcpy(data, CMSG_DATA(c), bytes);
            return true;
        }
    return false;
}

static u32 segment_of(struct msghdr *message, u32 bytes)
{
    int segment;
    bool found = find_control(message, SOL_UDP, UDP_GRO, &segment, sizeof segment);
    return found && segment > 0 ? (u32)segment : bytes;
}

/* Linux takes the VLAN tag out of a frame before a packet socket sees it: put it back, into the room
 * in front of the frame. Returns the bytes that this takes. */
static u32 restore_vlan_tag(struct msghdr *message, u8 *frame)
{
    struct tpacket_auxdata about;
    if (!find_control(message, SOL_PACKET, PACKET_AUXDATA, &about, sizeof about)
        || !(about.tp_status & TP_STATUS_VLAN_VALID))
        return 0;
    u16 tag[] = {htons(about.tp_vlan_tpid), htons(about.tp_vlan_tci)};
    memmove(frame - VLAN_TAG, frame, MAC_ADDRESSES);
    memcpy(frame - VLAN_TAG + MAC_ADDRESSES, tag, VLAN_TAG);
    return VLAN_TAG;
}

/* Packets that wait for another pass take it before others come in, but no more than `passes` of them:
 * one that never ends must not keep the switch from the others. */
static void finish_passes(struct sw *sw, u32 *passes)
{
    struct replication *r = &sw->replication;
    struct pending *packet;
    for (; *passes; --*passes) {
        if ((packet = replication_next(r, RT_CLONES))) {
            program_clone(sw, sw->state, packet);
            replication_finish(r, RT_CLONES);
        } else if ((packet = replication_next(r, RT_AGAIN))) {
            program_again(sw, sw->state, packet);
            replication_finish(r, RT_AGAIN);
        } else {
            return;
        }
    }
}

static bool passes_wait(const struct sw *sw)
{
    return sw->replication.queues[RT_CLONES].count || sw->replication.queues[RT_AGAIN].count;
}

static void process_waiting(struct sw *sw)
{
    u32 passes = PASSES;
    packet_lock(sw);
    sw->now = now_ns(sw);
    finish_passes(sw, &passes);
    flush_all(sw);
    pthread_mutex_unlock(&sw->lock);
}

static void process_batch(struct sw *sw, u32 number, struct mmsghdr *messages, int count)
{
    struct port *port = &sw->ports[number];
    u32 passes = PASSES;
    packet_lock(sw);
    sw->now = now_ns(sw);
    for (int i = 0; i < count; i++) {
        u8 *frames = messages[i].msg_hdr.msg_iov->iov_base;
        u32 restored = restore_vlan_tag(&messages[i].msg_hdr, frames);
        frames -= restored;
        u32 bytes = messages[i].msg_len + restored;
        u32 step = segment_of(&messages[i].msg_hdr, bytes);
        for (u32 at = 0; at < bytes; at += step) {
            u32 length = bytes - at < step ? bytes - at : step;
            port->in.packets++;
            port->in.bytes += length;
            if (port->capture_in >= 0)
                capture_frame(port->capture_in, frames + at, length);
            program_process(sw, sw->state, number, frames + at, length);
            finish_passes(sw, &passes);
        }
    }
    flush_all(sw);
    pthread_mutex_unlock(&sw->lock);
}

static bool receive_batch(struct sw *sw, u32 number)
{
    struct mmsghdr messages[RECEIVE_BATCH];
    struct iovec vectors[RECEIVE_BATCH];
    char control[RECEIVE_BATCH][CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    for (int i = 0; i < RECEIVE_BATCH; i++) {
        u8 *buffer = sw->receive_buffer + (size_t)i * RT_MAX_FRAME;
        vectors[i] = (struct iovec){buffer + VLAN_TAG, RT_MAX_FRAME - VLAN_TAG};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1,
            .msg_control = control[i], .msg_controllen = sizeof control[i]}};
    }
    int count = recvmmsg(sw->ports[number].fd, messages, RECEIVE_BATCH, MSG_DONTWAIT, NULL);
    if (count < 0)
        return errno == ECONNREFUSED; /* an earlier packet found nobody: nothing to do with this */
    process_batch(sw, number, messages, count);
    return count == RECEIVE_BATCH;
}

/* Before rt_run. Kinds: 1 for one frame per message, 2 for UDP with segmentation offload. */
void rt_add_port(struct sw *sw, u32 number, int fd, int kind)
{
    sw->ports[number].fd = fd;
    sw->ports[number].kind = (enum port_kind)kind;
    sw->ports[number].out_buffer = malloc(RT_MAX_FRAME + MOST_BYTES);
    sw->ports[number].capture_in = sw->ports[number].capture_out = -1;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    epoll_ctl(sw->poller, EPOLL_CTL_ADD, fd, &event);
}

/* Before rt_run: the files to which a port's frames are captured as they come in and go out. */
void rt_capture(struct sw *sw, u32 number, int in, int out)
{
    sw->ports[number].capture_in = in;
    sw->ports[number].capture_out = out;
}

/* The packet loop: returns after rt_stop. */
void rt_run(struct sw *sw)
{
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(sw->poller, events, 64, passes_wait(sw) ? 0 : -1);
        for (int i = 0; i < count; i++) {
            u32 number = events[i].data.u32;
            if (number == RT_MAX_PORTS)
                return;
            for (int turn = 0; turn < BATCHES_PER_TURN && receive_batch(sw, number); turn++)
                ;
        }
        if (passes_wait(sw))
            process_waiting(sw);
    }
}

void rt_stop(struct sw *sw)
{
    u64 one = 1;
    ssize_t written = write(sw->waker, &one, sizeof one);
    (void)written;
}

struct port_counts { struct count in, out; u64 send_failures; };

void rt_port_counts(struct sw *sw, u32 number, struct port_counts *counts)
{
    control_lock(sw);
    struct port *port = &sw->ports[number];
    *counts = (struct port_counts){port->in, port->out, port->send_failures};
    pthread_mutex_unlock(&sw->lock);
}

/* For measuring: the same frame through the program `times` times, what comes out thrown away. */
void rt_exercise(struct sw *sw, u32 port, const u8 *frame, u32 length, u32 times)
{
    control_lock(sw);
    sw->now = now_ns(sw);
    for (u32 i = 0; i < times; i++) {
        u32 passes = PASSES;
        program_process(sw, sw->state, port, frame, length);
        finish_passes(sw, &passes);
    }
    flush_all(sw);
    pthread_mutex_unlock(&sw->lock);
}
