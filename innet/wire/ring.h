/* A cable in shared memory between a port of the switch and a worker: one ring of frames for each
 * direction, and for each core of the switch.
 *
 * A ring has one writer and one reader. Neither trusts the other. Each keeps its own position in its own
 * memory, reads each number of the other once, and checks it before using it. The reader copies a frame
 * before looking at it. So if the other side writes rubbish, frames are lost or damaged, as on a wire,
 * and no more.
 *
 * The switch makes the memory when a worker connects to the port's Unix socket, and passes it on with
 * an eventfd for each core. A reader that is about to sleep says so in its ring. Only then does the
 * writer wake it. Neither can make the other block:
 *
 * - The switch wakes a worker with a message of one byte on the connection, by a call that does not block.
 *   It would be no use to make a shared eventfd non-blocking, since the worker could undo this.
 * - A worker wakes a core by writing 0 to the core's eventfd, which holds 1 from the beginning. This adds
 *   nothing, so the eventfd does not fill up. The core never reads it: its epoll is edge-triggered. */

#ifndef INNET_RING_H
#define INNET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CABLE_VERSION = 2 };
enum { CABLE_CORES = 64, CABLE_FILES = CABLE_CORES + 1 }; /* at most */
enum { RING_BYTES = 1 << 20, RING_HEADER = 8, RING_WRAP = 0xffff0001 };
enum { RING_AHEAD = 4096, CACHE_LINE = 64 }; /* bytes */

struct ring {
    _Alignas(64) uint64_t head; /* bytes that the writer has ever written */
    _Alignas(64) uint64_t tail; /* bytes that the reader has ever read */
    uint32_t asleep;            /* the reader has to be woken */
    _Alignas(64) uint8_t data[RING_BYTES];
};

struct cable { struct ring up, down; }; /* for each core; up leads to the switch */

/* The message that comes with the files: the memory, and the eventfds of the cores. */
struct cable_offer { uint32_t version, bytes; };

struct ring_writer {
    struct ring *ring;
    uint64_t head, tail; /* the tail is the last one seen */
};

struct ring_reader {
    struct ring *ring;
    uint64_t tail, head; /* the head is the last one seen */
};

/* A frame's place starts with its length, and all places start at a multiple of 8 bytes. */
static inline uint64_t ring_place(uint64_t bytes) { return RING_HEADER + ((bytes + 7) & ~7ull); }

static inline uint64_t ring_left(uint64_t position)
{
    return RING_BYTES - (position & (RING_BYTES - 1));
}

static inline uint8_t *ring_at(struct ring *ring, uint64_t position)
{
    return ring->data + (position & (RING_BYTES - 1));
}

static inline void ring_mark(struct ring *ring, uint64_t position, uint32_t length)
{
    memcpy(ring_at(ring, position), &length, sizeof length);
}

/* Fetches the memory that comes RING_AHEAD bytes behind a frame, while the caller is busy with that frame.
 * The other side has used it last, so it is in the cache of another processor. From `end` on, the other
 * side may still use it. */
static inline void ring_fetch_ahead(struct ring *ring, uint64_t position, uint64_t bytes,
                                    uint64_t end, bool writes)
{
    uint64_t most = end - position;
    for (uint64_t ahead = RING_AHEAD; ahead < RING_AHEAD + bytes && ahead < most;
         ahead += CACHE_LINE)
        if (writes)
            __builtin_prefetch(ring_at(ring, position + ahead), 1);
        else
            __builtin_prefetch(ring_at(ring, position + ahead), 0);
}

/* Returns whether so many bytes are free. Rubbish in the ring's tail makes it look full. */
static inline bool ring_has_room(struct ring_writer *writer, uint64_t bytes)
{
    if (RING_BYTES - (writer->head - writer->tail) >= bytes)
        return true;
    uint64_t tail = __atomic_load_n(&writer->ring->tail, __ATOMIC_ACQUIRE);
    if (writer->head - tail > RING_BYTES)
        return false;
    writer->tail = tail;
    return RING_BYTES - (writer->head - tail) >= bytes;
}

/* Returns the place for a frame of so many bytes, or NULL if there is no room. The caller may overwrite
 * `beyond` bytes behind the frame. */
static inline uint8_t *ring_reserve(struct ring_writer *writer, uint32_t bytes, uint32_t beyond)
{
    uint64_t place = ring_place((uint64_t)bytes + beyond), left = ring_left(writer->head);
    uint64_t skipped = place > left ? left : 0;
    if (!ring_has_room(writer, skipped + place))
        return NULL;
    if (skipped)
        ring_mark(writer->ring, writer->head, RING_WRAP);
    writer->head += skipped;
    return ring_at(writer->ring, writer->head) + RING_HEADER;
}

/* Completes the frame in the reserved place, for ring_publish. */
static inline void ring_commit(struct ring_writer *writer, uint32_t bytes)
{
    ring_mark(writer->ring, writer->head, bytes);
    uint64_t place = ring_place(bytes);
    ring_fetch_ahead(writer->ring, writer->head, place, writer->tail + RING_BYTES, true);
    writer->head += place;
}

/* Writes a frame for ring_publish. Returns false if there is no room. */
static inline bool ring_write(struct ring_writer *writer, const uint8_t *frame, uint32_t bytes)
{
    uint8_t *place = ring_reserve(writer, bytes, 0);
    if (!place)
        return false;
    memcpy(place, frame, bytes);
    ring_commit(writer, bytes);
    return true;
}

/* Clears a reader's flag, and returns whether it was set: then the caller has to wake the reader. */
static inline bool ring_sleeps(uint32_t *asleep)
{
    /* The head has to be visible before the flag is read. ring_sleep sets the flag and reads the head. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(asleep, __ATOMIC_RELAXED)
           && __atomic_exchange_n(asleep, 0, __ATOMIC_RELAXED);
}

/* Shows the reader the frames that have been written, but does not wake it. */
static inline void ring_show(struct ring_writer *writer)
{
    __atomic_store_n(&writer->ring->head, writer->head, __ATOMIC_RELEASE);
}

/* Shows the reader the frames that have been written. Returns whether the caller has to wake it. */
static inline bool ring_publish(struct ring_writer *writer)
{
    ring_show(writer);
    return ring_sleeps(&writer->ring->asleep);
}

/* Returns whether there is something to read. All positions are multiples of 8, so rubbish is, too. */
static inline bool ring_look(struct ring_reader *reader)
{
    if (reader->head == reader->tail)
        reader->head = __atomic_load_n(&reader->ring->head, __ATOMIC_ACQUIRE) & ~7ull;
    return reader->head != reader->tail;
}

/* Skips everything that is there, because it makes no sense. */
static inline uint32_t ring_skip(struct ring_reader *reader)
{
    reader->tail = reader->head;
    return 0;
}

/* Copies the next frame, and returns its length, or 0 if there is none. */
static inline uint32_t ring_read(struct ring_reader *reader, uint8_t *frame, uint32_t room)
{
    if (!ring_look(reader))
        return 0;
    for (int places = 0; places < 2; places++) {
        uint64_t there = reader->head - reader->tail, left = ring_left(reader->tail);
        if (there > RING_BYTES)
            return ring_skip(reader);
        /* Only once, since the writer may change it between its check and its use. */
        const void *at = ring_at(reader->ring, reader->tail);
        uint32_t length = __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
        if (length == RING_WRAP && !places && there > left) {
            reader->tail += left;
            continue;
        }
        uint64_t place = ring_place(length);
        if (!length || length > room || place > there || place > left)
            return ring_skip(reader);
        ring_fetch_ahead(reader->ring, reader->tail, place, reader->head, false);
        memcpy(frame, ring_at(reader->ring, reader->tail) + RING_HEADER, length);
        reader->tail += place;
        return length;
    }
    return ring_skip(reader);
}

/* Gives the room of the frames that have been read back to the writer. */
static inline void ring_release(struct ring_reader *reader)
{
    __atomic_store_n(&reader->ring->tail, reader->tail, __ATOMIC_RELEASE);
}

/* Asks the writer for a wake-up. Returns false if there is something to read already. */
static inline bool ring_sleep(struct ring_reader *reader)
{
    __atomic_store_n(&reader->ring->asleep, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return !ring_look(reader);
}

#endif
