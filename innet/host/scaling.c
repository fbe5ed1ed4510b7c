/* Rows of floats to integers and back, before, during and after their exchange.
 *
 * innet/host/quantizers/scaling.py calls it. */

#include <math.h>

#include "far_stores.h"
#include "scaling.h"

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

/* Divides rows by their count, if there are counts, and then multiplies them by their scale. The values
 * belong to an array of `all` rows. */
void innet_dequantize(const int32_t *sums, size_t rows, size_t lanes, const float *scales,
                      const uint16_t *counts, float *values, size_t all)
{
    for (size_t row = 0; row < rows; row++) {
        float made[lanes];
        dequantize_row(sums + row * lanes, lanes, scales[row], counts ? counts[row] : 1, made);
        store_words(values + row * lanes, made, lanes, all);
    }
    finish_far_stores();
}

/* Packs rows of floats into words, as packing.py describes: `per` rows of `lanes` into one row of words.
 * Divides each row by its step, and rounds to the nearest. Rows that are not `fit` become zeros. */
void innet_pack(const float *values, size_t chunks, size_t per, size_t lanes, const float *steps,
                const uint8_t *fit, int32_t limit, uint32_t *words)
{
    uint32_t bits = 32 / (uint32_t)per;
    float most = (float)limit;
    for (size_t chunk = 0; chunk < chunks; chunk++, words += lanes) {
        uint32_t made[lanes];
        memset(made, 0, sizeof made);
        for (size_t j = 0; j < per; j++, values += lanes, steps++, fit++) {
            float step = *fit ? *steps : INFINITY; /* finite numbers become zeros */
            uint32_t bias = j + 1 < per ? (uint32_t)limit : 0, shift = bits * (uint32_t)j;
            for (size_t k = 0; k < lanes; k++) {
                float scaled = values[k] / step;
                scaled = scaled < -most ? -most : scaled;
                scaled = scaled > most ? most : scaled;
                int32_t whole = *fit ? (int32_t)rintf(scaled) : 0;
                made[k] += ((uint32_t)whole + bias) << shift;
            }
        }
        store_words(words, made, lanes, chunks);
    }
    finish_far_stores();
}

/* Makes floats of sums of such words, given the number of contributions in each row of words. */
void innet_unpack(const int32_t *sums, size_t chunks, size_t per, size_t lanes, const float *steps,
                  const uint16_t *counts, int32_t limit, int64_t mean, float *values)
{
    uint32_t bits = 32 / (uint32_t)per;
    for (size_t chunk = 0; chunk < chunks; chunk++, sums += lanes) {
        int32_t biases = limit * counts[chunk];
        float divisor = mean ? counts[chunk] : 1;
        for (size_t j = 0; j < per; j++, values += lanes, steps++) {
            float made[lanes], step = *steps;
            int is_top = j + 1 == per;
            int32_t mask = is_top ? -1 : (int32_t)((1u << bits) - 1), bias = is_top ? 0 : biases;
            uint32_t shift = bits * (uint32_t)j;
            for (size_t k = 0; k < lanes; k++)
                made[k] = (float)(((sums[k] >> shift) & mask) - bias) / divisor * step;
            store_words(values, made, lanes, chunks * per);
        }
    }
    finish_far_stores();
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

void innet_store_scaled_row(uint8_t *lanes, struct scaling *scaling, size_t row, size_t rows)
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

void innet_make_result(struct scaling *scaling, size_t row, const uint32_t *sums, uint16_t count,
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
