/* The interface of parameters above racks, for Python and for the switch's packet loop. */

#ifndef INNET_PARAMETERS_H
#define INNET_PARAMETERS_H

#include "pbox.h"

typedef int32_t i32;

/* innet/wire/parameters.py has the same numbers and explains them. */
enum { ASKS_DESCRIBE = 0x100, ASKS_BEGIN = 0x200, ASKS_STEP = 0x400, ASKS = 0x700 };
enum { OVERFLOWED = 1, DONE = 0x4000, REFUSED = 0x8000 };
enum {
    ROW_CHUNK,
    ROW_STEP,
    ROW_NONCE,
    ROW_SCALE,
    ROW_RATE,
    ROW_HEADER = 8,
    ROW_COUNT = 1,
    ROW_RULE = 3
};
enum { MOST_CHUNKS = 1 << 26, NOT_FINITE = 1000 };
enum refusal { ACCEPTED, UNKNOWN, NO_ROOM, OUT_OF_TURN, DISAGREE, MALFORMED };

struct parameters;

/* The switch's thread writes these while Python reads them. */
struct parameter_counts { u64 jobs, bytes, steps, repeated, refused; };

/* A job that was silent for `silent_ns` is forgotten when another one needs its memory. */
struct parameters *parameters_new(u64 most_bytes, u64 silent_ns);

/* Sets the source address of results; other frames are left alone. Any thread may call this. */
void parameters_serve(struct parameters *parameters, u32 address);
void parameters_free(struct parameters *parameters);
const struct parameter_counts *parameters_counts(const struct parameters *parameters);

/* Call this for every frame that leaves the switch. */
void parameters_outward(void *context, u8 *frame, u32 bytes);

#endif
