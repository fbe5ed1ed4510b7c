/* The optimizers of a parameter server, for every server that runs them. */

#ifndef INNET_OPTIMIZERS_H
#define INNET_OPTIMIZERS_H

#include "constants.h"

#include <stddef.h>
#include <stdint.h>

/* An optimizer. Its rule, an enum update_rule, decides what `first` is: momentum, lr_decay, alpha, rho or
 * beta1. `second` is Adam's beta2. */
struct optimizer {
    uint32_t rule, zero;
    double first, second, epsilon, weight_decay;
};

/* Returns the number of floats that an optimizer keeps for each parameter. */
uint32_t state_count(uint32_t rule);

/* Makes one pass over a chunk. Adds the `count` gradients in `pushed` in that order, divides by
 * `divisor`, and runs the optimizer's step number `step`, counted from 1. Without an optimizer the
 * quotients become the parameters. States that the rule does not have may be NULL. */
void update(const struct optimizer *optimizer, float *parameters, float *state0, float *state1,
            const float *const *pushed, uint32_t count, uint32_t divisor, uint32_t length,
            uint64_t step, double rate);

#endif
