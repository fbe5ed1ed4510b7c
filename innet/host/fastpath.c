/* A worker's inner loops: over the packets of a batch, and over the numbers of a vector before and after
 * their exchange. */

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "fastpath.h"

/* The widest words that the processor stores past its caches. Parts of a cache line take longer. */
#if defined __AVX512F__
typedef __m512i widest;
#define LOAD _mm512_loadu_si512
#define STREAM _mm512_stream_si512
#elif defined __AVX__
typedef __m256i widest;
#define LOAD _mm256_loadu_si256
#define STREAM _mm256_stream_si256
#elif defined __SSE2__
typedef __m128i widest;
#define LOAD _mm_loadu_si128
#define STREAM _mm_stream_si128
#endif

enum { CACHE_LINE = 64 };
enum { ROWS_AHEAD = 4 };
enum { FAR_BYTES = 4 << 20 }; /* the arrays of a vector so large do not stay in the cache */

/* ---- scale ----------------------------------------------------------------------------------- */

/* Stores the bits of the largest magnitude in each row. A NaN's bits are above all others. */
void innet_largest(const uint32_t *values, size_t rows, size_t lanes, uint32_t *largest)
{
    for (size_t row = 0; row < rows; row++, values += lanes) {
        uint32_t found = 0;
        for (size_t k = 0; k < lanes; k++) {
            uint32_t magnitude = values[k] & 0x7fffffff;
            found = magnitude > found ? magnitude : found;
        }
        largest[row] = found;
    }
}

static inline int32_t rounded(float value, float scale) { return (int32_t)rintf(value * scale); }

static void quantize_row(const float *values, size_t lanes, float scale, int fit, int32_t *integers)
{
    if (!fit) {
        memset(integers, 0, lanes * sizeof *integers);
        return;
    }
    for (size_t k = 0; k < lanes; k++)
        integers[k] = rounded(values[k], scale);
}

/* Returns the number by which a multiplication gives the same bits as a division by the count, or 0. Powers
 * of two have such a number. A division takes several times as long. */
static float reciprocal(uint16_t count)
{
    return count && !(count & (count - 1)) ? 1 / (float)count : 0;
}

static void dequantize_row(const int32_t *sums, size_t lanes, float scale, uint16_t count,
                           float *values)
{
    float divisor = count, factor = reciprocal(count);
    if (factor)
        for (size_t k = 0; k < lanes; k++)
            values[k] = (float)sums[k] * factor * scale;
    else
        for (size_t k = 0; k < lanes; k++)
            values[k] = (float)sums[k] / divisor * scale;
}

/* Multiplies rows by their scale, and rounds to the nearest integer. Rows that are not `fit` become
 * zeros. */
void innet_quantize(const float *values, size_t rows, size_t lanes, const float *scales,
                    const uint8_t *fit, int32_t *integers)
{
    for (size_t row = 0; row < rows; row++)
        quantize_row(values + row * lanes, lanes, scales[row], fit[row], integers + row * lanes);
}

/* Divides rows by their count, if there are counts, and then multiplies them by their scale. */
void innet_dequantize(const int32_t *sums, size_t rows, size_t lanes, const float *scales,
                      const uint16_t *counts, float *values)
{
    for (size_t row = 0; row < rows; row++) {
        dequantize_row(sums + row * lanes, lanes, scales[row], counts ? counts[row] : 1,
                       values + row * lanes);
    }
}

/* Copies words to memory that nobody reads soon, past the caches if the processor can. A plain store would
 * first read what it overwrites. */
static void store_far(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
    if ((uintptr_t)to % sizeof(widest) == 0 && bytes % sizeof(widest) == 0) {
        for (size_t at = 0; at < bytes; at += sizeof(widest))
            STREAM((void *)((char *)to + at), LOAD((const void *)((const char *)from + at)));
        return;
    }
#endif
    memcpy(to, from, bytes);
}

static int is_far(size_t rows, size_t lanes) { return rows * lanes * WORD_BYTES >= FAR_BYTES; }

/* Makes the stores visible to all later reads, also in other threads. */
static void finish_far_stores(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* Copies a row of words to its place in an array of `rows` rows. */
static void store_words(void *to, const void *from, size_t lanes, size_t rows)
{
    size_t bytes = lanes * WORD_BYTES;
    if (is_far(rows, lanes))
        store_far(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Returns the integers of a row whose result will replace its values. The first call makes them in
 * `made`, and keeps a copy for later calls. */
static const int32_t *kept_row(struct scaling *scaling, size_t row, size_t rows, int32_t *made)
{
    size_t lanes = (size_t)scaling->lanes;
    int32_t *kept = scaling->kept + row * lanes;
    if (scaling->is_kept[row])
        return kept;
    quantize_row(scaling->values + row * lanes, lanes, scaling->up[row], scaling->fit[row], made);
    store_words(kept, made, lanes, rows);
    scaling->is_kept[row] = 1;
    return made;
}

static void store_scaled_row(uint8_t *lanes, struct scaling *scaling, size_t row, size_t rows)
{
    size_t count = (size_t)scaling->lanes;
    const float *values = scaling->values + row * count;
    float scale = scaling->up[row];
    if (scaling->kept) {
        int32_t made[count];
        store_row(lanes, (const uint32_t *)kept_row(scaling, row, rows, made), count);
        return;
    }
    if (!scaling->fit[row]) {
        memset(lanes, 0, count * WORD_BYTES);
        return;
    }
    for (size_t k = 0; k < count; k++)
        put_word(lanes + WORD_BYTES * k, (uint32_t)rounded(values[k], scale));
}

static void make_result(struct scaling *scaling, size_t row, const uint32_t *sums, uint16_t count,
                        size_t rows)
{
    size_t lanes = (size_t)scaling->lanes;
    float made[lanes];
    if (scaling->kept) {
        int32_t integers[lanes];
        kept_row(scaling, row, rows, integers);
    }
    dequantize_row((const int32_t *)sums, lanes, scaling->down[row], scaling->mean ? count : 1,
                   made);
    store_words(scaling->results + (row - (size_t)scaling->first) * lanes, made, lanes, rows);
    scaling->done[row] = 1;
}

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
        make_result(vectors->scaling, (size_t)chunk, row, vectors->counts[chunk], rows);
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
        store_scaled_row(lanes, vectors->scaling, (size_t)chunk, (size_t)vectors->chunks);
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
        if (window->state[slot] == STATE_DUE)
            due[count++] = window->chunk[slot];
    }
    int64_t room = most > flying ? most - flying : 0, waiting = 0;
    if (count > room || count > most_full)
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
