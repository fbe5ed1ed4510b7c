/* The interface of parameters above racks, for Python and for the switch's packet loop. */

#ifndef INNET_PARAMETERS_H
#define INNET_PARAMETERS_H

#include "optimizers.h"

struct parameters;

/* The switch's threads write these while Python reads them. */
struct parameter_counts { uint64_t jobs, bytes, steps, repeated, refused; };

/* A job that was silent for `silent_ns` is forgotten when another one needs its memory. */
struct parameters *parameters_new(uint64_t most_bytes, uint64_t silent_ns);

/* Sets the source address of results; other frames are left alone. Any thread may call this. */
void parameters_set_service(struct parameters *parameters, uint32_t address);
void parameters_free(struct parameters *parameters);
const struct parameter_counts *parameters_counts(const struct parameters *parameters);

/* Call this for every frame that leaves the switch. Any thread of the switch may call it. */
void parameters_on_egress(void *context, uint8_t *frame, uint32_t bytes);

#endif
