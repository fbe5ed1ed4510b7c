/* A worker's inner loops: over the packets of a batch, and over the numbers of a vector before and after
 * their exchange. */

#include <math.h>
#include <stdlib.h>

#include "fastpath.h"

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

static void dequantize_row(const int32_t *sums, size_t lanes, float scale, float count,
                           float *values)
{
    for (size_t k = 0; k < lanes; k++)
        values[k] = (float)sums[k] / count * scale;
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

static void store_scaled_row(uint8_t *lanes, const struct scaling *scaling, size_t row)
{
    size_t count = (size_t)scaling->lanes;
    const float *values = scaling->values + row * count;
    float scale = scaling->up[row];
    if (scaling->kept && scaling->is_kept[row]) {
        store_row(lanes, (const uint32_t *)scaling->kept + row * count, count);
        return;
    }
    if (!scaling->fit[row]) {
        memset(lanes, 0, count * WORD_BYTES);
        return;
    }
    for (size_t k = 0; k < count; k++)
        put_word(lanes + WORD_BYTES * k, (uint32_t)rounded(values[k], scale));
}

static void make_result(struct scaling *scaling, size_t row, const uint32_t *sums, uint8_t count)
{
    size_t lanes = (size_t)scaling->lanes;
    if (scaling->kept && !scaling->is_kept[row]) {
        quantize_row(scaling->values + row * lanes, lanes, scaling->up[row], scaling->fit[row],
                     scaling->kept + row * lanes);
        scaling->is_kept[row] = 1;
    }
    dequantize_row((const int32_t *)sums, lanes, scaling->down[row], scaling->mean ? count : 1,
                   scaling->results + row * lanes);
    scaling->done[row] = 1;
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

void innet_take(struct window *window, const struct format *format, struct vectors *vectors,
                const uint8_t *packets, size_t count, double now, double quiet_until,
                double too_soon, double reordering, struct taken *taken)
{
    const uint8_t *header = packets + format->front;
    for (size_t i = 0; i < count; i++, header += format->bytes) {
        taken->others += is_ours(window, header)
                         && (header[AT_KIND] == KIND_PENDING || header[AT_KIND] == KIND_STALE);
    }
    if (taken->others)
        return;
    header = packets + format->front;
    for (size_t i = 0; i < count; i++, header += format->bytes) {
        int64_t slot = half_at(header + AT_SLOT) - window->first_slot;
        if (header[AT_KIND] != KIND_RESULT || !is_ours(window, header) || slot < 0
            || slot >= window->slots || !window->attempts[slot]
            || window->sequence[slot] != word_at(header + AT_SEQUENCE)) {
            continue;
        }
        int64_t chunk = window->chunk[slot];
        double sent_at = window->sent_at[slot];
        int late =
            window->state[slot] == STATE_HAD || (window->suspect[slot] && now - sent_at < too_soon);
        if (window->attempts[slot] == 1 && sent_at > quiet_until && sent_at < taken->oldest)
            taken->oldest = sent_at;
        if (!late && sent_at > taken->newest)
            taken->newest = sent_at;
        taken->lost += window->suspect[slot] && !late;
        taken->marked += is_marked(format, header);
        uint32_t *sums = vectors->sums + (size_t)chunk * format->lanes;
        load_row(header + HEADER_BYTES, sums, format->lanes);
        vectors->flags[chunk] = half_at(header + AT_FLAGS) & (uint16_t)~FLAG_MARKED;
        if (header[AT_COUNT]) /* or else it is of all workers, as it says already */
            vectors->counts[chunk] = header[AT_COUNT];
        vectors->members[chunk] = word_at(header + AT_WORKERS);
        if (vectors->scaling)
            make_result(vectors->scaling, (size_t)chunk, sums, vectors->counts[chunk]);
        taken->chunks[taken->finished++] = chunk;
        window->sequence[slot]++;
        window->chunk[slot] += window->slots;
        window->state[slot] = window->chunk[slot] < vectors->chunks ? STATE_DUE : STATE_DONE;
        window->attempts[slot] = 0;
        window->suspect[slot] = 0;
    }
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

void innet_transmit(struct window *window, const struct format *format,
                    const struct vectors *vectors, int64_t most, double now, uint8_t *packets,
                    struct sent *sent)
{
    int64_t *due = window->scratch, count = 0, flying = 0, lowest = INT64_MAX;
    for (int64_t slot = 0; slot < window->slots; slot++) {
        flying += window->state[slot] == STATE_FLYING;
        lowest = window->chunk[slot] < lowest ? window->chunk[slot] : lowest;
        if (window->state[slot] == STATE_DUE)
            due[count++] = window->chunk[slot];
    }
    int64_t room = most > flying ? most - flying : 0;
    *sent = (struct sent){.packets = count};
    if (count > room) {
        qsort(due, (size_t)count, sizeof *due, lower);
        sent->packets = room ? room : due[0] == lowest;
        sent->waiting = count - sent->packets;
    }
    uint8_t *header = packets + format->front;
    for (int64_t i = 0; i < sent->packets; i++, header += format->bytes) {
        int64_t chunk = due[i], slot = chunk % window->slots;
        window->state[slot] = STATE_FLYING;
        window->sent_at[slot] = now;
        sent->repetitions += window->attempts[slot]++ > 0;
        put_half(header + AT_SLOT, (uint16_t)(window->first_slot + slot));
        put_half(header + AT_FLAGS, vectors->own_flags[chunk]);
        put_word(header + AT_SEQUENCE, (uint32_t)window->sequence[slot]);
        if (vectors->scaling)
            store_scaled_row(header + HEADER_BYTES, vectors->scaling, (size_t)chunk);
        else
            store_row(header + HEADER_BYTES, vectors->own + (size_t)chunk * format->lanes,
                      format->lanes);
        uint64_t sum = format->base + word_sum(header, format->words, format->weights);
        put_word(header + AT_CHECK, (uint32_t)(sum >> 32));
    }
}
