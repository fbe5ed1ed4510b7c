// P4 has no loops: the preprocessor repeats what every lane needs.
//
// FOR_EACH_LANE(M) is M(00) M(01) ... up to LANES, in hexadecimal digits that M can paste into names:
// lane_00 ... lane_3f for 64 lanes, lane_00 ... lane_ff for 256, lane_000 ... lane_3ff for 1024.

#ifndef INNET_UNROLL_P4
#define INNET_UNROLL_P4

#define LANE_ROW(M, high)                                      \
    M(high##0) M(high##1) M(high##2) M(high##3)                \
    M(high##4) M(high##5) M(high##6) M(high##7)                \
    M(high##8) M(high##9) M(high##a) M(high##b)                \
    M(high##c) M(high##d) M(high##e) M(high##f)

#define LANES_00_TO_3F(M)                                      \
    LANE_ROW(M, 0) LANE_ROW(M, 1) LANE_ROW(M, 2) LANE_ROW(M, 3)
#define LANES_40_TO_FF(M)                                      \
    LANE_ROW(M, 4) LANE_ROW(M, 5) LANE_ROW(M, 6) LANE_ROW(M, 7) \
    LANE_ROW(M, 8) LANE_ROW(M, 9) LANE_ROW(M, a) LANE_ROW(M, b) \
    LANE_ROW(M, c) LANE_ROW(M, d) LANE_ROW(M, e) LANE_ROW(M, f)

#define LANE_ROWS(M, high)                                              \
    LANE_ROW(M, high##0) LANE_ROW(M, high##1) LANE_ROW(M, high##2) LANE_ROW(M, high##3) \
    LANE_ROW(M, high##4) LANE_ROW(M, high##5) LANE_ROW(M, high##6) LANE_ROW(M, high##7) \
    LANE_ROW(M, high##8) LANE_ROW(M, high##9) LANE_ROW(M, high##a) LANE_ROW(M, high##b) \
    LANE_ROW(M, high##c) LANE_ROW(M, high##d) LANE_ROW(M, high##e) LANE_ROW(M, high##f)

#if LANES == 64
#define FOR_EACH_LANE(M) LANES_00_TO_3F(M)
#elif LANES == 256
#define FOR_EACH_LANE(M) LANES_00_TO_3F(M) LANES_40_TO_FF(M)
#elif LANES == 1024
#define FOR_EACH_LANE(M) \
    LANE_ROWS(M, 0) LANE_ROWS(M, 1) LANE_ROWS(M, 2) LANE_ROWS(M, 3)
#else
#error "LANES must be 64, 256 or 1024"
#endif

#endif
