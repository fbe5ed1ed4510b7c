/* A worker's inner loops over the packets of a batch. */

#include <stdlib.h>

#include "far_stores.h"
#include "fastpath.h"
#include "scaling.h"

enum { CACHE_LINE = 64 };
enum { ROWS_AHEAD = 4 };

static inline int64_t chunk_at(const struct vectors *vectors, int64_t position)
{
    return vectors->order ? vectors->order[position] : position;
}

/* ---- take ------------------------------------------------------------------------------------ */

static int is_ours(const struct window *window, const uint8_t *header)
{
    return header[AT_VERSION] == VERSION && half_at(header + AT_JOB) == window->job
           && half_at(header + AT_TERM) == window->term;
}

/* A hop on the packet's way, or on a contribution's, had a long queue. */
static int is_marked(const struct format *format, const uint8_t *header)
{
    return (half_at(header + AT_FLAGS) & FLAG_MARKED)
           || (format->front && (header - format->front)[TYPE_OF_SERVICE] % 4 == ECN_CONGESTED);
}

/* Returns how many replies there are that are not results. */
int64_t innet_others(const struct window *window, const struct inbox *inbox)
{
    int64_t others = 0;
    for (int length = 0; length < LENGTHS; length++) {
        const struct format *format = inbox->formats[length];
        const uint8_t *header = inbox->buffers[length] + format->front;
        for (int64_t i = 0; i < inbox->packets[length]; i++, header += format->bytes) {
            uint8_t kind = upper_nibble(header + AT_KIND);
            others += is_ours(window, header) && (kind == KIND_PENDING || kind == KIND_STALE);
        }
    }
    return others;
}

/* Takes the lanes of a result. If no worker has sent any, they are zeros. */
static void take_lanes(const struct format *format, struct vectors *vectors, int64_t chunk,
                       const uint8_t *header)
{
    size_t lanes = vectors->lanes, rows = (size_t)vectors->chunks;
    uint32_t row[lanes];
    if (format->lanes)
        load_row(header + HEADER_BYTES, row, lanes);
    else
        memset(row, 0, sizeof row);
    if (vectors->sums)
        store_words(vectors->sums + (size_t)(chunk - vectors->sums_first) * lanes, row, lanes,
                    rows);
    if (vectors->scaling)
        innet_make_result(vectors->scaling, (size_t)chunk, row, vectors->counts[chunk], rows);
}

static void take_from(struct window *window, const struct format *format, struct vectors *vectors,
                      const uint8_t *packets, int64_t count, double now, double quiet_until,
                      double too_soon, struct taken *taken)
{
    const uint8_t *header = packets + format->front;
    for (int64_t i = 0; i < count; i++, header += format->bytes) {
        int64_t slot = half_at(header + AT_SLOT) - window->first_slot;
        if (upper_nibble(header + AT_KIND) != KIND_RESULT || !is_ours(window, header) || slot < 0
            || slot >= window->slots || !window->attempts[slot]
            || window->sequence[slot] != word_at(header + AT_SEQUENCE)) {
            continue;
        }
        int64_t position = window->chunk[slot], chunk = chunk_at(vectors, position);
        uint16_t flags = half_at(header + AT_FLAGS);
        int wanted = vectors->own_flags[chunk] & FLAG_WANTED;
        /* Unwanted lanes are in order: some switches send all workers the same copy of a result. */
        int carried = (flags & FLAG_CARRIED) != 0;
        if (format->lanes ? !carried : wanted && carried) {
            /* No switch sends such a packet, unless a quorum was complete before our contribution. */
            taken->corrupted += format->lanes || !window->has_quorum;
            continue;
        }
        double sent_at = window->sent_at[slot];
        int late =
            window->state[slot] == STATE_HAD || (window->suspect[slot] && now - sent_at < too_soon);
        if (window->attempts[slot] == 1 && sent_at > quiet_until && sent_at < taken->oldest)
            taken->oldest = sent_at;
        if (!late && sent_at > taken->newest)
            taken->newest = sent_at;
        taken->lost += window->suspect[slot] && !late;
        taken->marked += is_marked(format, header);
        vectors->counts[chunk] = half_at(header + AT_COUNT);
        if (wanted)
            take_lanes(format, vectors, chunk, header);
        vectors->flags[chunk] = flags & (uint16_t)~TRANSPORT_FLAGS;
        vectors->members[chunk] = word_pair_at(header + AT_WORKERS);
        taken->positions[taken->finished++] = position;
        window->sequence[slot]++;
        window->chunk[slot] += window->slots;
        window->state[slot] = window->chunk[slot] < vectors->chunks ? STATE_DUE : STATE_DONE;
        window->attempts[slot] = 0;
        window->suspect[slot] = 0;
    }
}

void innet_take(struct window *window, const struct inbox *inbox, struct vectors *vectors,
                double now, double quiet_until, double too_soon, double reordering,
                struct taken *taken)
{
    for (int length = LENGTHS; length--;) {
        take_from(window, inbox->formats[length], vectors, inbox->buffers[length],
                  inbox->packets[length], now, quiet_until, too_soon, taken);
    }
    finish_far_stores();
    for (int64_t slot = 0; slot < window->slots && taken->finished; slot++) {
        if (window->state[slot] == STATE_FLYING
            && window->sent_at[slot] + reordering < taken->newest) {
            window->state[slot] = STATE_DUE;
            window->suspect[slot] = 1;
        }
    }
}

/* ---- transmit -------------------------------------------------------------------------------- */

static int lower(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

/* Fetches the lanes of a chunk that is sent soon into the cache. */
static void fetch_lanes(const struct vectors *vectors, int64_t chunk)
{
    if (!(vectors->own_flags[chunk] & FLAG_CARRIED))
        return;
    size_t bytes = vectors->lanes * WORD_BYTES;
    const char *row =
        vectors->scaling
            ? (const char *)vectors->scaling->values + (size_t)chunk * bytes
            : (const char *)vectors->own + (size_t)(chunk - vectors->own_first) * bytes;
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch(row + at);
}

static void store_lanes(uint8_t *lanes, const struct vectors *vectors, int64_t chunk)
{
    if (vectors->scaling) {
        innet_store_scaled_row(lanes, vectors->scaling, (size_t)chunk, (size_t)vectors->chunks);
        return;
    }
    size_t row = (size_t)(chunk - vectors->own_first);
    store_row(lanes, vectors->own + row * vectors->lanes, vectors->lanes);
}

/* Leaves out all chunks with lanes but the first `most_full`. Returns how many chunks remain. */
static int64_t hold_back(const struct vectors *vectors, int64_t *due, int64_t count,
                         int64_t most_full)
{
    int64_t kept = 0, full = 0;
    for (int64_t i = 0; i < count; i++) {
        int carried = (vectors->own_flags[chunk_at(vectors, due[i])] & FLAG_CARRIED) != 0;
        if (!carried || full < most_full)
            due[kept++] = due[i];
        full += carried;
    }
    return kept;
}

int64_t innet_due(struct window *window, const struct vectors *vectors, int64_t most,
                  int64_t most_full, struct sent *sent)
{
    int64_t *due = window->scratch, count = 0, flying = 0, lowest = INT64_MAX;
    for (int64_t slot = 0; slot < window->slots; slot++) {
        flying += window->state[slot] == STATE_FLYING;
        lowest = window->chunk[slot] < lowest ? window->chunk[slot] : lowest;
    }
    /* From the slot of the lowest chunk on, chunks ascend unless packets were lost. */
    int ascend = 1;
    for (int64_t i = 0, slot = lowest % window->slots; i < window->slots; i++) {
        if (window->state[slot] == STATE_DUE) {
            ascend &= !count || due[count - 1] < window->chunk[slot];
            due[count++] = window->chunk[slot];
        }
        slot = slot + 1 < window->slots ? slot + 1 : 0;
    }
    int64_t room = most > flying ? most - flying : 0, waiting = 0;
    if (!ascend)
        qsort(due, (size_t)count, sizeof *due, lower);
    if (count > room) {
        waiting = count - (room ? room : due[0] == lowest);
        count -= waiting;
    }
    *sent = (struct sent){.waiting = waiting, .held = count};
    if (count > most_full)
        count = hold_back(vectors, due, count, most_full);
    sent->held -= count;
    return count;
}

void innet_transmit(struct window *window, const struct outbox *outbox,
                    const struct vectors *vectors, int64_t first, int64_t end, int64_t count,
                    double now, struct sent *sent)
{
    const int64_t *due = window->scratch;
    sent->packets[BARE] = sent->packets[FULL] = 0;
    for (int64_t i = first; i < end; i++) {
        int64_t chunk = chunk_at(vectors, due[i]), slot = due[i] % window->slots;
        uint16_t flags = vectors->own_flags[chunk];
        if (i + ROWS_AHEAD < count)
            fetch_lanes(vectors, chunk_at(vectors, due[i + ROWS_AHEAD]));
        int length = flags & FLAG_CARRIED ? FULL : BARE;
        const struct format *format = outbox->formats[length];
        uint8_t *packets = outbox->packets[length];
        uint8_t *header = packets + (size_t)sent->packets[length]++ * format->bytes + format->front;
        window->state[slot] = STATE_FLYING;
        window->sent_at[slot] = now;
        sent->repetitions += window->attempts[slot]++ > 0;
        put_half(header + AT_SLOT, (uint16_t)(window->first_slot + slot));
        put_half(header + AT_FLAGS, flags);
        put_word(header + AT_SEQUENCE, (uint32_t)window->sequence[slot]);
        if (length == FULL)
            store_lanes(header + HEADER_BYTES, vectors, chunk);
        uint64_t sum = format->base + word_sum(header, format->words, format->weights);
        put_word(header + AT_CHECK, (uint32_t)(sum >> 32));
    }
    finish_far_stores();
}
