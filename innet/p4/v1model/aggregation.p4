// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// A contribution passes these controls in this order; each touches its register once:
//
//     Admission    who is this, and may it contribute?      table `workers`
//     Sequence     stale, current or newer than the cell?   register `sequence`
//     Arrivals     who has contributed; was it in already?  register `arrived`
//     Countdown    how many contributions were missing?     register `missing`
//     Decision     the truth table                          table `decision`, constant
//     Members      who is in a finished sum                 register `members`
//     Lanes        start, combine or read                   registers `cell_*`
//     Reply        result to all, result to one, pending    multicast group of the job

#ifndef INNET_AGGREGATION_P4
#define INNET_AGGREGATION_P4

#include "metadata.p4"
#include "../shared/headers.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    // By ingress port: innet packets for this switch that no entry of `workers` allows.
    @name("refused")
    counter(512, CounterType.packets) refused;

    action admit(bit<32> worker, bit<8> quorum, bit<16> group, bit<8> job_index) {
        meta.admitted = 1;
        meta.worker = worker;
        meta.quorum = quorum;
        meta.group = group;
        meta.job_index = job_index;
    }

    action refuse() {
        refused.count((bit<32>) standard.ingress_port);
    }

    // A worker is a (port, IP address, UDP port). What it may touch is one epoch of one job and an
    // aligned power-of-two range of slots, which is why the slot matches by prefix.
    @name("workers")
    table workers {
        key = {
            standard.ingress_port: exact @name("port");
            hdr.ipv4.source: exact @name("address");
            hdr.udp.source: exact @name("udp_port");
            hdr.innet.job: exact @name("job");
            hdr.innet.epoch: exact @name("epoch");
            hdr.innet.slot: lpm @name("slot");
        }
        actions = { admit; refuse; }
        const default_action = refuse;
        size = 4096;
    }

    apply {
        workers.apply();
    }
}

control Sequence(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(CELLS) sequence;

    // Sequence numbers start at 1: whatever comes next is newer.
    action clear() {
        sequence.write(meta.cell, 0);
    }

    apply {
        if (hdr.packet_out.isValid()) {
            clear();
        } else {
            bit<32> held;
            @atomic {
                sequence.read(held, meta.cell);
                sequence.write(meta.cell, hdr.innet.sequence > held ? hdr.innet.sequence : held);
            }
            if (hdr.innet.sequence > held) {
                meta.age = AGE_NEWER;
            } else if (hdr.innet.sequence == held) {
                meta.age = AGE_CURRENT;
            } else {
                meta.age = AGE_STALE;
            }
        }
    }
}

control Arrivals(inout metadata_t meta) {
    register<bit<32>>(CELLS) arrived;

    action restart() {
        arrived.write(meta.cell, meta.worker);
        meta.arrived = 0;
    }

    action join() {
        @atomic {
            arrived.read(meta.arrived, meta.cell);
            arrived.write(meta.cell, meta.arrived | meta.worker);
        }
        meta.repeated = meta.arrived & meta.worker;
    }

    apply {
        if (meta.age == AGE_NEWER) {
            restart();
        } else {
            join();
        }
    }
}

control Countdown(inout metadata_t meta) {
    register<bit<8>>(CELLS) missing;

    action restart() {
        missing.write(meta.cell, meta.quorum - 1);
        meta.missing = meta.quorum;
    }

    // Saturating, so that a contribution after the quorum leaves the chunk complete.
    action count() {
        @atomic {
            missing.read(meta.missing, meta.cell);
            missing.write(meta.cell, meta.missing |-| 1);
        }
    }

    action look() {
        missing.read(meta.missing, meta.cell);
    }

    apply {
        if (meta.age == AGE_NEWER) {
            restart();
        } else if (meta.repeated == 0) {
            count();
        } else {
            look();
        }
    }
}

control Decision(inout metadata_t meta) {
    // By job_index. Every contribution that reaches a cell counts in exactly one of the first four.
    @name("waiting")   counter(JOBS, CounterType.packets) waiting;
    @name("completed") counter(JOBS, CounterType.packets) completed;
    @name("answered")  counter(JOBS, CounterType.packets) answered;
    @name("pending")   counter(JOBS, CounterType.packets) pending;
    @name("stale")     counter(JOBS, CounterType.packets) stale;

    action wait(bit<2> fold) {
        meta.fold = fold;
        meta.reply = REPLY_NONE;
        waiting.count((bit<32>) meta.job_index);
    }

    action complete(bit<2> fold) {
        meta.fold = fold;
        meta.reply = REPLY_ALL;
        completed.count((bit<32>) meta.job_index);
    }

    action answer() {
        meta.fold = FOLD_READ;
        meta.reply = REPLY_ONE;
        answered.count((bit<32>) meta.job_index);
    }

    action remind() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_PENDING;
        pending.count((bit<32>) meta.job_index);
    }

    action ignore() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_NONE;
        stale.count((bit<32>) meta.job_index);
    }

    // The slot state machine; docs/slot-protocol.md walks through it row by row.
    @name("decision")
    table decision {
        key = {
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
        }
        actions = { wait; complete; answer; remind; ignore; }
        const default_action = ignore;
        const entries = {
            // age         repeated missing
            (AGE_NEWER,   _, 1): complete(FOLD_START);    // a job of one worker
            (AGE_NEWER,   _, _): wait(FOLD_START);        // the first of a new chunk
            (AGE_CURRENT, _, 0): answer();                // finished: it lost the result, or is late
            (AGE_CURRENT, 0, 1): complete(FOLD_COMBINE);  // the last that was missing
            (AGE_CURRENT, 0, _): wait(FOLD_COMBINE);      // one more
            (AGE_CURRENT, _, _): remind();                // had it; others are still missing
        }
    }

    apply {
        decision.apply();
    }
}

control Members(inout metadata_t meta) {
    register<bit<32>>(CELLS) members;

    // From here on meta.arrived is what the reply reports. `arrived` itself goes on collecting the
    // late ones, which are not in the sum.
    action keep() {
        meta.arrived = meta.arrived | meta.worker;
        members.write(meta.cell, meta.arrived);
    }

    action recall() {
        members.read(meta.arrived, meta.cell);
    }

    apply {
        if (meta.reply == REPLY_ALL) {
            keep();
        } else if (meta.reply == REPLY_ONE) {
            recall();
        }
    }
}

#define LANE_REGISTER(n) register<bit<32>>(CELLS) cell_##n;

#define LANE_START(n)                                                                  \
    cell_##n.write(meta.cell, hdr.lanes.lane_##n);

#define LANE_ADD(n)                                                                    \
    cell_##n.read(held, meta.cell);                                                    \
    hdr.lanes.lane_##n = (bit<32>) ((int<32>) held |+| (int<32>) hdr.lanes.lane_##n);  \
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
    @atomic action maximum() { FOR_EACH_LANE(LANE_MAXIMUM) }
    action read()    { FOR_EACH_LANE(LANE_READ) }

    // One packet is at work on all lanes at once.
    @name("lanes")
    table lanes {
        key = {
            meta.fold: exact @name("fold");
            hdr.innet.operation: exact @name("operation");
        }
        actions = { start; add; maximum; read; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FOLD_START,   OPERATION_SUM): start();
            (FOLD_START,   OPERATION_MAX): start();
            (FOLD_COMBINE, OPERATION_SUM): add();
            (FOLD_COMBINE, OPERATION_MAX): maximum();
            (FOLD_READ,    OPERATION_SUM): read();
            (FOLD_READ,    OPERATION_MAX): read();
        }
    }

    apply {
        lanes.apply();
    }
}

control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // The frame turns around; copies for the other workers get their addresses in the egress.
    action turn_around(bit<8> kind) {
        bit<32> address = hdr.ipv4.source;
        bit<16> port = hdr.udp.source;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.my_mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = address;
        hdr.ipv4.time_to_live = 64;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.destination = port;
        hdr.udp.checksum = 0;  // "none": IPv4 allows it
        hdr.innet.kind = kind;
        hdr.innet.count = meta.quorum;
        hdr.innet.workers = meta.arrived;
    }

    apply {
        if (meta.reply == REPLY_ALL) {
            turn_around(KIND_RESULT);
            standard.mcast_grp = meta.group;
        } else if (meta.reply == REPLY_ONE) {
            turn_around(KIND_RESULT);
            standard.egress_spec = standard.ingress_port;
        } else if (meta.reply == REPLY_PENDING) {
            turn_around(KIND_PENDING);
            standard.egress_spec = standard.ingress_port;
        } else {
            mark_to_drop(standard);
        }
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    Admission() admission;
    Sequence() sequence;
    Arrivals() arrivals;
    Countdown() countdown;
    Decision() decision;
    Members() members;
    Lanes() lanes;
    Reply() reply;

    apply {
        meta.cell = (bit<32>) (hdr.innet.slot ++ hdr.innet.sequence[0:0]);
        if (hdr.packet_out.isValid()) {
            sequence.apply(hdr, meta);
            standard.egress_spec = standard.ingress_port;
        } else {
            admission.apply(hdr, meta, standard);
            if (meta.admitted == 1) {
                sequence.apply(hdr, meta);
                if (meta.age != AGE_STALE) {
                    arrivals.apply(meta);
                    countdown.apply(meta);
                }
                decision.apply(meta);
                members.apply(meta);
                lanes.apply(hdr, meta);
            }
            reply.apply(hdr, meta, standard);
        }
    }
}

// On every copy of a result: the address of the worker that it is for.
control Readdress(inout headers_t hdr, in standard_metadata_t standard) {
    action address_to(bit<48> mac, bit<32> address, bit<16> udp_port) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = address;
        hdr.udp.destination = udp_port;
    }

    // A copy's instance number in the job's multicast group is its worker's bit index plus 1.
    @name("replicas")
    table replicas {
        key = {
            hdr.innet.job: exact @name("job");
            standard.egress_rid: exact @name("instance");
        }
        actions = { address_to; NoAction; }
        const default_action = NoAction;
        size = 4096;
    }

    apply {
        replicas.apply();
    }
}

#endif
