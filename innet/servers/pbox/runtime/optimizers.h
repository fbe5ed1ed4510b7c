/* The optimizers of a parameter server, for every server that runs them. */

#ifndef INNET_OPTIMIZERS_H
#define INNET_OPTIMIZERS_H

#include "constants.h"

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

/* An optimizer. Its rule, an enum update_rule, decides what `first` is: momentum, lr_decay, alpha, rho or
 * beta1. `second` is Adam's beta2. */
struct optimizer {
    u32 rule, zero;
    double first, second, epsilon, weight_decay;
};

/* Returns the number of floats that an optimizer keeps for each parameter. */
u32 state_count(u32 rule);

/* Makes one pass over a chunk. Adds the `count` gradients in `pushed` in that order, divides by
 * `divisor`, and runs the optimizer's step number `step`, which counts from 1. Without an optimizer the
 * quotient becomes the parameter. States that the rule does not have may be NULL. */
void update(const struct optimizer *optimizer, float *parameters, float *state0, float *state1,
            const float *const *pushed, u32 count, u32 divisor, u32 length, u64 step, double rate);

#endif
