/* The floats of an exchange, as scaling.c converts them. */

#ifndef INNET_SCALING_H
#define INNET_SCALING_H

#include <stddef.h>
#include <stdint.h>

/* The conversion of the floats of an exchange: each row to integers when it is sent, and each sum back
 * to floats when it arrives. */
struct scaling {
    int64_t lanes;
    const float *values, *up; /* rows, and their factors */
    int32_t *kept; /* NULL, or the integers of rows that are overwritten by their results */
    uint8_t *is_kept;
    const uint8_t *fit;   /* 0 for a row that is sent as zeros */
    const float *down;    /* the sums' factors, applied after the division */
    int64_t mean;         /* 1 to divide sums by the number of contributions */
    int64_t first, count; /* the rows that have results */
    float *results;
    uint8_t *done; /* 1 for rows whose results are made */
};

/* Stores the integers of a row as a packet's lanes. `rows` is the number of all rows. */
void innet_store_scaled_row(uint8_t *lanes, struct scaling *scaling, size_t row, size_t rows);

/* Makes the result of a row from its sums and their number of contributions. */
void innet_make_result(struct scaling *scaling, size_t row, const uint32_t *sums, uint16_t count,
                       size_t rows);

#endif
