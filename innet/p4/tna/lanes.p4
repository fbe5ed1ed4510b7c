// The lanes: two to a stateful ALU, which starts, adds, takes the maximum or reads, once per packet.
//
// On Tofino 1 a stateful ALU returns one word. A packet that goes out with the cell's lanes gets the low
// one of every pair on its first pass, and the high one on a second. A stateful ALU also has room for
// four programs, not five: to read the low lane is to add zeros, which the truth tables put in for the
// packet's own.

#ifndef INNET_LANES_P4
#define INNET_LANES_P4

#include "metadata.p4"
#include "pairs.p4"

struct pair_t {
    int<32> low;
    int<32> high;
}

#if __TARGET_TOFINO__ == 1
#define PAIR_ACTION(name, low_n) RegisterAction<pair_t, bit<16>, bit<32>>(cell_##low_n) name##_##low_n
#define APPLY_RETURNS void apply(inout pair_t held, out bit<32> low)
#define RETURN_BOTH low = (bit<32>) held.low;
#define EXECUTE(name, low_n, high_n) \
    hdr.lanes.lane_##low_n = name##_##low_n.execute(meta.cell);
#else
#define PAIR_ACTION(name, low_n) \
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(cell_##low_n) name##_##low_n
#define APPLY_RETURNS void apply(inout pair_t held, out bit<32> low, out bit<32> high)
#define RETURN_BOTH low = (bit<32>) held.low; high = (bit<32>) held.high;
#define EXECUTE(name, low_n, high_n) \
    hdr.lanes.lane_##low_n = name##_##low_n.execute(meta.cell, hdr.lanes.lane_##high_n);
#endif

#define LOW(n)  ((int<32>) hdr.lanes.lane_##n)
#define HIGH(n) ((int<32>) hdr.lanes.lane_##n)

#define PAIR_START(low_n, high_n)                                                        \
    RegisterAction<pair_t, bit<16>, bit<32>>(cell_##low_n) start_program_##low_n = {     \
        void apply(inout pair_t held) {                                                  \
            held.low = LOW(low_n);                                                       \
            held.high = HIGH(high_n);                                                    \
        }                                                                                \
    };                                                                                   \
    action start_##low_n() { start_program_##low_n.execute(meta.cell); }

#define PAIR_ADD(low_n, high_n)                                                          \
    PAIR_ACTION(add_program, low_n) = {                                                  \
        APPLY_RETURNS {                                                                  \
            held.low = held.low |+| LOW(low_n);                                          \
            held.high = held.high |+| HIGH(high_n);                                      \
            RETURN_BOTH                                                                  \
        }                                                                                \
    };                                                                                   \
    action add_##low_n() { EXECUTE(add_program, low_n, high_n) }

#define PAIR_MAXIMUM(low_n, high_n)                                                      \
    PAIR_ACTION(maximum_program, low_n) = {                                              \
        APPLY_RETURNS {                                                                  \
            held.low = max(held.low, LOW(low_n));                                        \
            held.high = max(held.high, HIGH(high_n));                                    \
            RETURN_BOTH                                                                  \
        }                                                                                \
    };                                                                                   \
    action maximum_##low_n() { EXECUTE(maximum_program, low_n, high_n) }

#if __TARGET_TOFINO__ == 1
#define PAIR_READ(low_n, high_n)                                                         \
    RegisterAction<pair_t, bit<16>, bit<32>>(cell_##low_n) finish_program_##low_n = {    \
        void apply(inout pair_t held, out bit<32> high) {                                \
            high = (bit<32>) held.high;                                                  \
        }                                                                                \
    };                                                                                   \
    action finish_##low_n() {                                                            \
        hdr.lanes.lane_##high_n = finish_program_##low_n.execute(meta.cell);             \
    }
#define READ_ENTRIES(low_n)                                                              \
            (FOLD_READ,    OPERATION_SUM): add_##low_n();                                \
            (FOLD_READ,    OPERATION_MAX): add_##low_n();                                \
            (FOLD_FINISH,  OPERATION_SUM): finish_##low_n();                             \
            (FOLD_FINISH,  OPERATION_MAX): finish_##low_n();
#define READ_ACTION(low_n) finish_##low_n
#else
#define PAIR_READ(low_n, high_n)                                                         \
    PAIR_ACTION(read_program, low_n) = {                                                 \
        APPLY_RETURNS {                                                                  \
            RETURN_BOTH                                                                  \
        }                                                                                \
    };                                                                                   \
    action read_##low_n() { EXECUTE(read_program, low_n, high_n) }
#define READ_ENTRIES(low_n)                                                              \
            (FOLD_READ,    OPERATION_SUM): read_##low_n();                               \
            (FOLD_READ,    OPERATION_MAX): read_##low_n();
#define READ_ACTION(low_n) read_##low_n
#endif

#define PAIR(low_n, high_n)                                                              \
    Register<pair_t, bit<16>>(CELLS) cell_##low_n;                                       \
    PAIR_START(low_n, high_n)                                                            \
    PAIR_ADD(low_n, high_n)                                                              \
    PAIR_MAXIMUM(low_n, high_n)                                                          \
    PAIR_READ(low_n, high_n)                                                             \
    table lanes_##low_n {                                                                \
        key = {                                                                          \
            meta.fold: exact @name("fold");                                              \
            hdr.innet.operation: exact @name("operation");                               \
        }                                                                                \
        actions = {                                                                      \
            start_##low_n; add_##low_n; maximum_##low_n; READ_ACTION(low_n); NoAction;   \
        }                                                                                \
        const default_action = NoAction;                                                 \
        const entries = {                                                                \
            (FOLD_START,   OPERATION_SUM): start_##low_n();                              \
            (FOLD_START,   OPERATION_MAX): start_##low_n();                              \
            (FOLD_COMBINE, OPERATION_SUM): add_##low_n();                                \
            (FOLD_COMBINE, OPERATION_MAX): maximum_##low_n();                            \
            READ_ENTRIES(low_n)                                                          \
        }                                                                                \
        size = 8;                                                                        \
    }

#define APPLY_PAIR(low_n, high_n) lanes_##low_n.apply();

control Lanes(inout headers_t hdr, in metadata_t meta) {
    FOR_EACH_PAIR(PAIR)

    apply {
        FOR_EACH_PAIR(APPLY_PAIR)
    }
}

#endif
