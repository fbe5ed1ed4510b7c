// P4 has no loops: the preprocessor repeats what every lane needs.
//
// FOR_EACH_LANE(M) is M(00) M(01) ... up to LANES, in two hexadecimal digits that M can paste into
// names: lane_00 ... lane_3f for 64 lanes, lane_00 ... lane_ff for 256.

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

#if LANES == 64
#define FOR_EACH_LANE(M) LANES_00_TO_3F(M)
#elif LANES == 256
#define FOR_EACH_LANE(M) LANES_00_TO_3F(M) LANES_40_TO_FF(M)
#else
#error "LANES must be 64 or 256"
#endif

#endif
