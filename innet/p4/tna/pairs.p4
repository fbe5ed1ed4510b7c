// FOR_EACH_PAIR(M) is M(00, 01) M(02, 03) ... up to LANES: the two lanes that share a stateful ALU.

#ifndef INNET_PAIRS_P4
#define INNET_PAIRS_P4

#include "../shared/constants.p4"

#define PAIR_ROW(M, high)                                     \
    M(high##0, high##1) M(high##2, high##3)                   \
    M(high##4, high##5) M(high##6, high##7)                   \
    M(high##8, high##9) M(high##a, high##b)                   \
    M(high##c, high##d) M(high##e, high##f)

#if LANES != 64
#error "64 lanes are what the stateful ALUs have room for"
#endif
#define FOR_EACH_PAIR(M) PAIR_ROW(M, 0) PAIR_ROW(M, 1) PAIR_ROW(M, 2) PAIR_ROW(M, 3)

#endif
