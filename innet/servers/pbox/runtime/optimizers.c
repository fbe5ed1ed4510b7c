/* Aggregation and optimizers, one block at a time. A block stays in the first-level cache from the first
 * addition to the new parameter, so there is only one pass over memory.
 *
 * Every rounding is written out, as in PyTorch's CPU kernels. The compiler contracts nothing, and FMA
 * marks exactly the places with a fused multiply-add. */

#include "optimizers.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 1024 };

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c)) /* without the instruction, fmaf would be a function call */
#endif

uint32_t state_count(uint32_t rule)
{
    static const uint32_t counts[RULES] = {[RULE_MOMENTUM] = 1, [RULE_NESTEROV] = 1,
                                           [RULE_ADAGRAD] = 1,  [RULE_RMSPROP] = 1,
                                           [RULE_ADADELTA] = 2, [RULE_ADAM] = 2};
    return counts[rule];
}

/* Sums in the order of the pointers, whatever their number, so the bits are the same in every run. */
static void add(float *restrict sum, const float *const *pushed, uint32_t count, uint32_t at,
                uint32_t n)
{
    const float *restrict a = pushed[0] + at, *restrict b = pushed[1] + at;
    uint32_t done = 2;
    if (count >= 4) {
        const float *restrict c = pushed[2] + at, *restrict d = pushed[3] + at;
        for (uint32_t i = 0; i < n; i++)
            sum[i] = ((a[i] + b[i]) + c[i]) + d[i];
        done = 4;
    } else {
        for (uint32_t i = 0; i < n; i++)
            sum[i] = a[i] + b[i];
    }
    for (; done + 4 <= count; done += 4) {
        const float *restrict c = pushed[done] + at, *restrict d = pushed[done + 1] + at;
        const float *restrict e = pushed[done + 2] + at, *restrict f = pushed[done + 3] + at;
        for (uint32_t i = 0; i < n; i++)
            sum[i] = (((sum[i] + c[i]) + d[i]) + e[i]) + f[i];
    }
    for (; done < count; done++) {
        const float *restrict c = pushed[done] + at;
        for (uint32_t i = 0; i < n; i++)
            sum[i] += c[i];
    }
}

static void divide(float *restrict sum, uint32_t divisor, uint32_t n)
{
    float by = (float)divisor;
    if ((divisor & (divisor - 1)) == 0) { /* a power of two: the same bits, and cheaper */
        float factor = 1.0f / by;
        for (uint32_t i = 0; i < n; i++)
            sum[i] *= factor;
    } else {
        for (uint32_t i = 0; i < n; i++)
            sum[i] /= by;
    }
}

/* The values of a step that are the same for all of its parameters. */
struct constants { float rate, first, rest_of_first, second, rest_of_second, epsilon, root; };

#define KERNEL(name)                                                                               \
    static void name(const struct constants *k, float *restrict w, const float *restrict g,        \
                     float *restrict s, float *restrict t, uint32_t n)

KERNEL(sgd)
{
    (void)s, (void)t;
    for (uint32_t i = 0; i < n; i++)
        w[i] = FMA(g[i], -k->rate, w[i]);
}

KERNEL(momentum)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = s[i] * k->first + g[i];
        w[i] = FMA(s[i], -k->rate, w[i]);
    }
}

KERNEL(nesterov)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = s[i] * k->first + g[i];
        w[i] = FMA(FMA(s[i], k->first, g[i]), -k->rate, w[i]);
    }
}

KERNEL(adagrad)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = FMA(g[i], g[i], s[i]);
        w[i] += -k->rate * g[i] / (sqrtf(s[i]) + k->epsilon);
    }
}

KERNEL(rmsprop)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = FMA(k->rest_of_first * g[i], g[i], s[i] * k->first);
        w[i] += -k->rate * g[i] / (sqrtf(s[i]) + k->epsilon);
    }
}

KERNEL(adadelta)
{
    for (uint32_t i = 0; i < n; i++) {
        s[i] = FMA(k->rest_of_first * g[i], g[i], s[i] * k->first);
        float delta = sqrtf(t[i] + k->epsilon) / sqrtf(s[i] + k->epsilon) * g[i];
        t[i] = FMA(k->rest_of_first * delta, delta, t[i] * k->first);
        w[i] = FMA(delta, -k->rate, w[i]);
    }
}

KERNEL(adam)
{
    /* As PyTorch's lerp does, begin with the term that weighs more. */
    bool old = k->rest_of_first < 0.5f;
    float weight = old ? k->rest_of_first : k->rest_of_first - 1;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = FMA(weight, g[i] - s[i], old ? s[i] : g[i]);
        t[i] = FMA(k->rest_of_second * g[i], g[i], t[i] * k->second);
        w[i] += -k->rate * s[i] / (sqrtf(t[i]) / k->root + k->epsilon);
    }
}

typedef void kernel(const struct constants *, float *restrict, const float *restrict,
                    float *restrict, float *restrict, uint32_t);
static kernel *const kernels[RULES] = {[RULE_SGD] = sgd,           [RULE_MOMENTUM] = momentum,
                                       [RULE_NESTEROV] = nesterov, [RULE_ADAGRAD] = adagrad,
                                       [RULE_RMSPROP] = rmsprop,   [RULE_ADADELTA] = adadelta,
                                       [RULE_ADAM] = adam};

static struct constants constants(const struct optimizer *o, uint64_t step, double rate)
{
    double root = 1;
    if (o->rule == RULE_ADAGRAD)
        rate /= 1 + (double)(step - 1) * o->first;
    if (o->rule == RULE_ADAM) {
        rate /= 1 - pow(o->first, (double)step);
        root = sqrt(1 - pow(o->second, (double)step));
    }
    return (struct constants){
        .rate = (float)rate,
        .first = (float)o->first,
        .rest_of_first = (float)(1 - o->first),
        .second = (float)o->second,
        .rest_of_second = (float)(1 - o->second),
        .epsilon = (float)o->epsilon,
        .root = (float)root,
    };
}

void update(const struct optimizer *o, float *parameters, float *state0, float *state1,
            const float *const *pushed, uint32_t count, uint32_t divisor, uint32_t length,
            uint64_t step, double rate)
{
    const struct constants k = constants(o, step, rate);
    const float decay = (float)o->weight_decay;
    _Alignas(64) float gradient[BLOCK];
    for (uint32_t at = 0; at < length; at += BLOCK) {
        uint32_t n = length - at < BLOCK ? length - at : BLOCK;
        float *restrict w = parameters + at;
        float *sum = o->rule == RULE_NONE ? w : gradient;
        const float *g = sum;
        if (count > 1)
            add(sum, pushed, count, at, n);
        else if (o->rule == RULE_NONE || divisor > 1 || decay != 0)
            memcpy(sum, pushed[0] + at, n * sizeof *sum);
        else
            g = pushed[0] + at;
        if (divisor > 1)
            divide(sum, divisor, n);
        if (o->rule == RULE_NONE)
            continue;
        if (decay != 0)
            for (uint32_t i = 0; i < n; i++)
                gradient[i] = FMA(w[i], decay, gradient[i]);
        kernels[o->rule](&k, w, g, state0 ? state0 + at : NULL, state1 ? state1 + at : NULL, n);
    }
}
