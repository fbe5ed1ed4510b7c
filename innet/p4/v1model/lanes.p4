// The lanes: a register for each, and a program for all of them at once.

#ifndef INNET_LANES_P4
#define INNET_LANES_P4

#include "metadata.p4"

#define LANE_REGISTER(n) register<bit<32>>(CELLS) cell_##n;

#define LANE_START(n)                                                                  \
    cell_##n.write(meta.cell, hdr.lanes.lane_##n);

#define LANE_ADD(n)                                                                    \
    cell_##n.read(held, meta.cell);                                                    \
    hdr.lanes.lane_##n = (bit<32>) ((int<32>) held |+| (int<32>) hdr.lanes.lane_##n);  \
    cell_##n.write(meta.cell, hdr.lanes.lane_##n);

#define LANE_WRAP(n)                                                                   \
    cell_##n.read(held, meta.cell);                                                    \
    hdr.lanes.lane_##n = held + hdr.lanes.lane_##n;                                    \
    cell_##n.write(meta.cell, hdr.lanes.lane_##n);

#define LANE_MAXIMUM(n)                                                                \
    cell_##n.read(held, meta.cell);                                                    \
    hdr.lanes.lane_##n =                                                               \
        (int<32>) held > (int<32>) hdr.lanes.lane_##n ? held : hdr.lanes.lane_##n;     \
    cell_##n.write(meta.cell, hdr.lanes.lane_##n);

#define LANE_READ(n)                                                                   \
    cell_##n.read(hdr.lanes.lane_##n, meta.cell);

control Lanes(inout headers_t hdr, in metadata_t meta) {
    FOR_EACH_LANE(LANE_REGISTER)
    bit<32> held;

    action start()   { FOR_EACH_LANE(LANE_START) }
    @atomic action add()     { FOR_EACH_LANE(LANE_ADD) }
    @atomic action wrap()    { FOR_EACH_LANE(LANE_WRAP) }
    @atomic action maximum() { FOR_EACH_LANE(LANE_MAXIMUM) }
    action read()    { FOR_EACH_LANE(LANE_READ) }

    // One packet is at work on all lanes at once.
    @name("lanes")
    table lanes {
        key = {
            meta.fold: exact @name("fold");
            hdr.innet.operation: exact @name("operation");
        }
        actions = { start; add; wrap; maximum; read; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FOLD_START,   OPERATION_SUM): start();
            (FOLD_START,   OPERATION_MAX): start();
            (FOLD_START,   OPERATION_WRAPPING_SUM): start();
            (FOLD_COMBINE, OPERATION_SUM): add();
            (FOLD_COMBINE, OPERATION_MAX): maximum();
            (FOLD_COMBINE, OPERATION_WRAPPING_SUM): wrap();
            (FOLD_READ,    OPERATION_SUM): read();
            (FOLD_READ,    OPERATION_MAX): read();
            (FOLD_READ,    OPERATION_WRAPPING_SUM): read();
        }
    }

    apply {
        lanes.apply();
    }
}

#endif
