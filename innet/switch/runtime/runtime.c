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

/* How frames cross a port's socket. */
enum port_kind { PORT_NONE, PORT_FRAMES, PORT_SEGMENTS };

struct port {
    int fd;
    enum port_kind kind;
    struct count in, out;
    u64 send_failures;
    /* Frames on their way out, back to back, all of `segment` bytes; the last may be shorter. */
    u8 *out_buffer;
    u32 out_bytes, out_frames, segment;
    bool queued;
};

struct mc_group { u32 id, count; struct replica *replicas; };

struct sw {
    pthread_mutex_t lock;
    struct table *tables;
    struct count **counters;
    struct mc_group *groups;
    u32 group_count;
    void *state;
    u32 drop_port;
    u64 dropped;
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
    pthread_mutex_init(&sw->lock, NULL);
    clock_gettime(CLOCK_MONOTONIC, &sw->started);
    sw->drop_port = drop_port;
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
    for (u32 i = 0; i < sw->group_count; i++)
        free(sw->groups[i].replicas);
    for (u32 i = 0; i < RT_MAX_PORTS; i++)
        free(sw->ports[i].out_buffer);
    close(sw->poller);
    close(sw->waker);
    free(sw->groups);
    free(sw->tables);
    free(sw->counters);
    free(sw->state);
    free(sw->receive_buffer);
    pthread_mutex_destroy(&sw->lock);
    free(sw);
}

u64 rt_now_us(const struct sw *sw)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)(now.tv_sec - sw->started.tv_sec) * 1000000
         + (u64)((now.tv_nsec - sw->started.tv_nsec) / 1000);
}

const u32 *rt_drop_port(const struct sw *sw) { return &sw->drop_port; }

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

/* The matching entry of highest priority, or NULL. */
struct entry *rt_lookup(struct sw *sw, u32 table_id, const u8 *key)
{
    struct table *table = &sw->tables[table_id];
    struct entry *best = NULL;
    for (u32 i = 0; i < table->group_count; i++) {
        struct group *group = &table->groups[i];
        if (best && best->priority >= group->top_priority)
            break; /* groups are in order of their best entry */
        u32 hash = hash_key(key, group->mask, table->key_bytes);
        for (struct entry *e = group->bucket[hash & (group->buckets - 1)]; e; e = e->next)
            if (e->hash == hash && same_key(e, key, group->mask, table->key_bytes)
                && (!best || e->priority > best->priority))
                best = e;
    }
    return best;
}

/* What the table does when nothing matches. */
struct entry *rt_miss(struct sw *sw, u32 table) { return &sw->tables[table].miss; }

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

/* Returns the new entry's id. Keys and masks have the table's key_bytes. */
u32 rt_insert(struct sw *sw, u32 table_id, const u8 *key, const u8 *mask, u32 priority, u32 action,
              const u64 *args, u32 words)
{
    pthread_mutex_lock(&sw->lock);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = calloc(1, sizeof *entry);
    entry->key = malloc(table->key_bytes * 2 + 1);
    entry->mask = entry->key + table->key_bytes;
    for (u32 i = 0; i < table->key_bytes; i++)
        entry->key[i] = key[i] & mask[i];
    memcpy(entry->mask, mask, table->key_bytes);
    entry->hash = hash_key(key, mask, table->key_bytes);
    entry->action = action;
    entry->priority = priority;
    entry->args = copy_args(args, words);
    entry->id = free_id(table);
    table->by_id[entry->id] = entry;
    struct group *group = find_group(table, mask);
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
    pthread_mutex_lock(&sw->lock);
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
void rt_set_action(struct sw *sw, u32 table_id, u32 id, u32 action, const u64 *args, u32 words)
{
    pthread_mutex_lock(&sw->lock);
    struct table *table = &sw->tables[table_id];
    struct entry *entry = id == ~0u ? &table->miss : table->by_id[id];
    free(entry->args);
    entry->action = action;
    entry->args = copy_args(args, words);
    pthread_mutex_unlock(&sw->lock);
}

static void exchange_count(struct sw *sw, struct count *count, struct count *with, bool set)
{
    pthread_mutex_lock(&sw->lock);
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

/* As in BMv2, counting outside of the array has no effect. */
void rt_count(struct sw *sw, u32 counter, u64 index, u32 length)
{
    if (index < program.counter_size[counter]) {
        sw->counters[counter][index].packets++;
        sw->counters[counter][index].bytes += length;
    }
}

/* ---- multicast --------------------------------------------------------------------------------- */

u32 rt_group(struct sw *sw, u32 id, const struct replica **replicas)
{
    for (u32 i = 0; i < sw->group_count; i++)
        if (sw->groups[i].id == id) {
            *replicas = sw->groups[i].replicas;
            return sw->groups[i].count;
        }
    return 0;
}

/* Sets the group's replicas; none deletes it. */
void rt_set_group(struct sw *sw, u32 id, const struct replica *replicas, u32 count)
{
    pthread_mutex_lock(&sw->lock);
    u32 i = 0;
    while (i < sw->group_count && sw->groups[i].id != id)
        i++;
    if (i == sw->group_count) {
        sw->groups = realloc(sw->groups, (sw->group_count + 1) * sizeof *sw->groups);
        sw->groups[sw->group_count++] = (struct mc_group){.id = id};
    }
    free(sw->groups[i].replicas);
    sw->groups[i].replicas = calloc(count + 1, sizeof *replicas);
    memcpy(sw->groups[i].replicas, replicas, count * sizeof *replicas);
    sw->groups[i].count = count;
    if (!count) {
        free(sw->groups[i].replicas);
        sw->groups[i] = sw->groups[--sw->group_count];
    }
    pthread_mutex_unlock(&sw->lock);
}

/* ---- sending ----------------------------------------------------------------------------------- */

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
        port->send_failures += port->out_frames;
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
            port->send_failures++;
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
}

/* A frame joins those that wait if all of them, but perhaps the last, have the same size. */
static bool fits(const struct port *port, u32 bytes)
{
    return port->out_frames < MOST_SEGMENTS && port->out_bytes + bytes <= MOST_BYTES
        && bytes <= port->segment && port->out_bytes == port->out_frames * port->segment;
}

void rt_dropped(struct sw *sw) { sw->dropped++; }

void rt_emit(struct sw *sw, u32 number, const u8 *head, u32 head_bytes, const u8 *rest, u32 rest_bytes)
{
    u32 bytes = head_bytes + rest_bytes;
    if (number >= RT_MAX_PORTS || sw->ports[number].kind == PORT_NONE || bytes > RT_MAX_FRAME) {
        sw->dropped++;
        return;
    }
    struct port *port = &sw->ports[number];
    if (port->out_frames && !fits(port, bytes))
        flush_port(port);
    if (!port->out_frames)
        port->segment = bytes;
    memcpy(port->out_buffer + port->out_bytes, head, head_bytes);
    memcpy(port->out_buffer + port->out_bytes + head_bytes, rest, rest_bytes);
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

static void process_batch(struct sw *sw, u32 number, struct mmsghdr *messages, int count)
{
    struct port *port = &sw->ports[number];
    pthread_mutex_lock(&sw->lock);
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
            program_process(sw, sw->state, number, frames + at, length);
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
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    epoll_ctl(sw->poller, EPOLL_CTL_ADD, fd, &event);
}

/* The packet loop: returns after rt_stop. */
void rt_run(struct sw *sw)
{
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(sw->poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            u32 number = events[i].data.u32;
            if (number == RT_MAX_PORTS)
                return;
            for (int turn = 0; turn < BATCHES_PER_TURN && receive_batch(sw, number); turn++)
                ;
        }
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
    pthread_mutex_lock(&sw->lock);
    struct port *port = &sw->ports[number];
    *counts = (struct port_counts){port->in, port->out, port->send_failures};
    pthread_mutex_unlock(&sw->lock);
}

/* For measuring: the same frame through the program `times` times, what comes out thrown away. */
void rt_exercise(struct sw *sw, u32 port, const u8 *frame, u32 length, u32 times)
{
    pthread_mutex_lock(&sw->lock);
    for (u32 i = 0; i < times; i++)
        program_process(sw, sw->state, port, frame, length);
    pthread_mutex_unlock(&sw->lock);
}
