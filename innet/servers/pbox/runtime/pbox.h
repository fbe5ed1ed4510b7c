/* Definitions that the server's cores and the client share: frames on the wire, and the optimizers.
 *
 * Everything on the wire is little-endian, as the machine must be too: float32 payloads are received
 * where they are used, without conversion. */

#ifndef INNET_PBOX_H
#define INNET_PBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian, and so has to be the machine"
#endif

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum { MAGIC = 0x31584250 /* "PBX1" */, KEY_BYTES = 16, MOST_WORKERS = 256, BATCH = 8 };

enum kind { HELLO = 1, PUSH, PULL, INIT, RESULT, REFUSAL };

/* The header of every frame. `step` is the number of updates of the chunk when the sender last saw it. In
 * a HELLO, `step` is the job's number and `chunk` the worker's rank. */
struct header {
    u32 magic;
    u8 kind, zero[3];
    u32 chunk, bytes;
    u64 step;
    double rate; /* the learning rate, of a PUSH */
};
_Static_assert(sizeof(struct header) == 32, "as documented");

enum rule { NONE, SGD, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADADELTA, ADAM, RULES };

/* An optimizer. The rule decides what `first` is: momentum, lr_decay, alpha, rho or beta1. `second` is
 * Adam's beta2. */
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
