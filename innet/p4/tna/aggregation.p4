// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// The same as v1model's, in as few stages as the chip has. What a stage has to wait for is on its left:
//
//     Admission    who is this, and may it contribute?              table `workers`
//      └▶ Sequence    stale, current or newer than the cell?        registers `sequence`
//         Arrivals    who had contributed before?                   register `arrived`
//          └▶ Countdown    how many contributions were missing?     register `missing`
//             Members      who was in the sum?                      register `members`
//             Flags        what did they say of themselves?         register `flags`
//              └▶ Decision    the truth table                       table `decision`, constant
//                  └▶ Lanes      start, combine or read             registers `cell_*`
//                     Reply      result to all; result, pending or stale to one
//                     Counters   which of these it was
//
// A register is read and written once per packet, and returns one word. So what several registers
// have to know of a cell, each keeps for itself: `sequence` and `arrived` the sequence number, `missing`,
// `members` and `flags` how many contributions are missing. All packets pass them in the same order.

#ifndef INNET_AGGREGATION_P4
#define INNET_AGGREGATION_P4

#include "metadata.p4"
#include "lanes.p4"

control Admission(inout ingress_headers_t hdr, inout ingress_metadata_t meta,
                  in ingress_intrinsic_metadata_t standard) {
    action admit(bit<32> worker, bit<8> quorum, bit<16> group, bit<8> job_index) {
        meta.worker = worker;
        meta.quorum = quorum;
        meta.group = group;
        meta.job_index = job_index;
    }

    action refuse() {
        meta.refused = 1;
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
        size = WORKERS;
    }

    apply {
        if (meta.form == FORM_CONTRIBUTION) {
            workers.apply();
        } else {
            refuse();
        }
    }
}

control Sequence(in ingress_headers_t hdr, inout ingress_metadata_t meta) {
    Register<bit<32>, bit<16>>(CELLS) sequence;

    RegisterAction<bit<32>, bit<16>, bit<4>>(sequence) compare_program = {
        void apply(inout bit<32> held, out bit<4> age) {
            age = this.predicate(held < hdr.innet.sequence, held == hdr.innet.sequence);
            if (held < hdr.innet.sequence) {
                held = hdr.innet.sequence;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<4>>(sequence) look_program = {
        void apply(inout bit<32> held, out bit<4> age) {
            age = this.predicate(held < hdr.innet.sequence, held == hdr.innet.sequence);
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<4>>(sequence) clear_program = {
        void apply(inout bit<32> held) {
            held = 0;
        }
    };

    action compare() { meta.age = compare_program.execute(meta.cell); }
    action look() { meta.age = look_program.execute(meta.cell); }
    action clear() { clear_program.execute(meta.cell); }

    // Sequence numbers start at 1: whatever comes after a clear is newer. Clears are heard that the
    // switch acknowledges: the controller's, from the CPU port.
    table compared {
        key = {
            meta.form: ternary;
            meta.worker: ternary;
            hdr.packet_in.isValid(): ternary @name("acknowledged");
        }
        actions = { compare; look; clear; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FORM_CLEAR, _, true): clear();
            (FORM_AGAIN, _, _): look();
            (FORM_CONTRIBUTION, 0, _): NoAction();
            (FORM_CONTRIBUTION, _, _): compare();
        }
        size = 16;
    }

    apply {
        compared.apply();
    }
}

struct arrivals_t {
    bit<32> sequence;
    bit<32> workers;
}

control Arrivals(in ingress_headers_t hdr, inout ingress_metadata_t meta) {
    Register<arrivals_t, bit<16>>(CELLS) arrived;

    RegisterAction<arrivals_t, bit<16>, bit<32>>(arrived) join_program = {
        void apply(inout arrivals_t held, out bit<32> before) {
            before = held.workers;
            if (held.sequence < hdr.innet.sequence) {
                held.workers = meta.worker;
            } else if (held.sequence == hdr.innet.sequence) {
                held.workers = held.workers | meta.worker;
            }
            if (held.sequence < hdr.innet.sequence) {
                held.sequence = hdr.innet.sequence;
            }
        }
    };
    RegisterAction<arrivals_t, bit<16>, bit<32>>(arrived) clear_program = {
        void apply(inout arrivals_t held) {
            held.sequence = 0;
        }
    };

    action join() { meta.arrived = join_program.execute(meta.cell); }
    action clear() { clear_program.execute(meta.cell); }

    table joined {
        key = {
            meta.form: ternary;
            meta.worker: ternary;
            hdr.packet_in.isValid(): ternary @name("acknowledged");
        }
        actions = { join; clear; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FORM_CLEAR, _, true): clear();
            (FORM_CONTRIBUTION, 0, _): NoAction();
            (FORM_CONTRIBUTION, _, _): join();
        }
        size = 16;
    }

    apply {
        joined.apply();
    }
}

// The rows of a table that asks whether a worker's own bit is in a bitmap.
#define BIT_ROW(n, action) \
    (AGE_CURRENT, 32w1 << n &&& 32w1 << n, 32w1 << n &&& 32w1 << n): action;
#define FOR_EACH_BIT(M, action)                                                          \
    M(0, action) M(1, action) M(2, action) M(3, action) M(4, action) M(5, action)        \
    M(6, action) M(7, action) M(8, action) M(9, action) M(10, action) M(11, action)      \
    M(12, action) M(13, action) M(14, action) M(15, action) M(16, action) M(17, action)  \
    M(18, action) M(19, action) M(20, action) M(21, action) M(22, action) M(23, action)  \
    M(24, action) M(25, action) M(26, action) M(27, action) M(28, action) M(29, action)  \
    M(30, action) M(31, action)

#define BY_REPETITION(again)                                                             \
        key = {                                                                          \
            meta.age: ternary;                                                           \
            meta.arrived: ternary;                                                       \
            meta.worker: ternary;                                                        \
        }                                                                                \
        actions = { restart; count; again; NoAction; }                                   \
        const default_action = NoAction;                                                 \
        const entries = {                                                                \
            (_, _, 0): NoAction();                                                       \
            (AGE_NEWER, _, _): restart();                                                \
            FOR_EACH_BIT(BIT_ROW, again())                                               \
            (AGE_CURRENT, _, _): count();                                                \
        }                                                                                \
        size = 64;

control Countdown(inout ingress_metadata_t meta) {
    Register<bit<16>, bit<16>>(CELLS) missing;

    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) restart_program = {
        void apply(inout bit<16> held) {
            held = (bit<16>) meta.quorum - 1;
        }
    };
    // Saturating, so that a contribution after the quorum leaves the chunk complete.
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) count_program = {
        void apply(inout bit<16> held, out bit<16> before) {
            before = held;
            held = held |-| 1;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) look_program = {
        void apply(inout bit<16> held, out bit<16> before) {
            before = held;
        }
    };

    action restart() { restart_program.execute(meta.cell); }
    action count() {
        meta.missing = count_program.execute(meta.cell);
        meta.repeated = 0;
    }
    action look() {
        meta.missing = look_program.execute(meta.cell);
        meta.repeated = 1;
    }

    table counted { BY_REPETITION(look) }

    apply {
        counted.apply();
    }
}

struct members_t {
    bit<32> missing;
    bit<32> workers;
}

// Who is in the sum. `arrived` goes on collecting those who come after the quorum.
control Members(inout ingress_metadata_t meta) {
    Register<members_t, bit<16>>(CELLS) members;

    RegisterAction<members_t, bit<16>, bit<32>>(members) restart_program = {
        void apply(inout members_t held) {
            held.missing = (bit<32>) meta.quorum - 1;
            held.workers = meta.worker;
        }
    };
    RegisterAction<members_t, bit<16>, bit<32>>(members) count_program = {
        void apply(inout members_t held, out bit<32> before) {
            before = held.workers;
            if (held.missing != 0) {
                held.workers = held.workers | meta.worker;
            }
            held.missing = held.missing |-| 1;
        }
    };
    RegisterAction<members_t, bit<16>, bit<32>>(members) look_program = {
        void apply(inout members_t held, out bit<32> before) {
            before = held.workers;
        }
    };

    action restart() {
        restart_program.execute(meta.cell);
        meta.members = 0;
    }
    action count() { meta.members = count_program.execute(meta.cell); }
    action look() { meta.members = look_program.execute(meta.cell); }

    table collected { BY_REPETITION(look) }

    apply {
        collected.apply();
    }
}

struct flags_t {
    bit<16> missing;
    bit<16> flags;
}

control Flags(in ingress_headers_t hdr, inout ingress_metadata_t meta) {
    Register<flags_t, bit<16>>(CELLS) flags;

    RegisterAction<flags_t, bit<16>, bit<16>>(flags) restart_program = {
        void apply(inout flags_t held) {
            held.missing = (bit<16>) meta.quorum - 1;
            held.flags = hdr.innet.flags;
        }
    };
    RegisterAction<flags_t, bit<16>, bit<16>>(flags) count_program = {
        void apply(inout flags_t held, out bit<16> before) {
            before = held.flags;
            if (held.missing != 0) {
                held.flags = held.flags | hdr.innet.flags;
            }
            held.missing = held.missing |-| 1;
        }
    };
    RegisterAction<flags_t, bit<16>, bit<16>>(flags) look_program = {
        void apply(inout flags_t held, out bit<16> before) {
            before = held.flags;
        }
    };

    action restart() {
        restart_program.execute(meta.cell);
        meta.flags = 0;
    }
    action count() { meta.flags = count_program.execute(meta.cell); }
    action look() { meta.flags = look_program.execute(meta.cell); }

    table flagged { BY_REPETITION(look) }

    apply {
        flagged.apply();
    }
}

#define ZERO_LANE(n) hdr.lanes.lane_##n = 0;

control Decision(inout ingress_headers_t hdr, inout ingress_metadata_t meta) {
    action wait(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_WAITING;
    }

    action complete(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_COMPLETED;
    }

    action answer() {
        meta.fold = FOLD_READ;
        meta.outcome = OUTCOME_ANSWERED;
#if __TARGET_TOFINO__ == 1
        FOR_EACH_LANE(ZERO_LANE)
#endif
    }

    action remind() {
        meta.outcome = OUTCOME_PENDING;
    }

    action reject() {
        meta.outcome = OUTCOME_STALE;
    }

    action deliver() {
        meta.fold = FOLD_FINISH;
        meta.outcome = OUTCOME_DELIVERED;
    }

    action abandon() {
        meta.outcome = OUTCOME_OVERTAKEN;
    }

    // The slot state machine; docs/slot-protocol.md walks through it row by row.
    @name("decision")
    table decision {
        key = {
            meta.form: ternary @name("form");
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
            meta.quorum: ternary @name("quorum");
        }
        actions = { wait; complete; answer; remind; reject; deliver; abandon; NoAction; }
        const default_action = NoAction;
        const entries = {
            // form             age          repeated missing quorum
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 1): complete(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _): answer();
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _): complete(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _): wait(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _): remind();
            (FORM_CONTRIBUTION, AGE_STALE,   _, _, _): reject();
            (FORM_AGAIN,        AGE_CURRENT, _, _, _): deliver();
            (FORM_AGAIN,        _,           _, _, _): abandon();
        }
        size = 16;
    }

    apply {
        decision.apply();
    }
}

control Counters(in ingress_metadata_t meta, in ingress_intrinsic_metadata_t standard) {
    // By ingress port: innet packets for this switch that have no form, or that no entry of `workers`
    // allows.
    @name("refused")   Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS) refused;
    // By outcome and job_index, OUTCOME_* * JOBS + job_index.
    @name("outcomes")  Counter<bit<32>, bit<12>>(8 * JOBS, CounterType_t.PACKETS) outcomes;

    apply {
        if (meta.refused == 1) {
            refused.count(standard.ingress_port);
        } else if (meta.outcome != OUTCOME_NONE) {
            outcomes.count(meta.outcome ++ meta.job_index);
        }
    }
}

control Reply(inout ingress_headers_t hdr, in ingress_metadata_t meta,
              in ingress_intrinsic_metadata_t standard,
              inout ingress_intrinsic_metadata_for_deparser_t deparser,
              inout ingress_intrinsic_metadata_for_tm_t traffic) {
    // The frame turns around; copies for the other workers get their addresses in the egress.
    action turn_around(bit<8> kind) {
        bit<16> port = hdr.udp.source;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.my_mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = meta.sender;
        hdr.ipv4.time_to_live = 64;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.destination = port;
        hdr.udp.checksum = 0;  // "none": IPv4 allows it
        hdr.innet.kind = kind;
        hdr.innet.count = meta.quorum;
        hdr.innet.check = 0;  // "none": see docs/tofino.md
    }

    action to_all() {
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN_ALL;
        hdr.bridge.group = meta.group;
#else
        hdr.bridge.purpose = PURPOSE_COPY;
        traffic.mcast_grp_a = meta.group;
#endif
    }

    action to_one() {
        hdr.bridge.purpose = PURPOSE_REPLY;
        traffic.ucast_egress_port = standard.ingress_port;
    }

    action result_to_one() {
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN;
#else
        to_one();
#endif
    }

    action complete() {
        turn_around(KIND_RESULT);
        hdr.innet.workers = meta.members | meta.worker;
        hdr.innet.flags = hdr.innet.flags | meta.flags;
        to_all();
    }

    action answer() {
        turn_around(KIND_RESULT);
        hdr.innet.workers = meta.members;
        hdr.innet.flags = meta.flags;
        result_to_one();
    }

    action remind() {
        turn_around(KIND_PENDING);
        hdr.innet.workers = meta.members;
        to_one();
    }

    action reject() {
        turn_around(KIND_STALE);
        hdr.innet.workers = 0;
        to_one();
    }

    action drop() {
        deparser.drop_ctl = 1;
    }

    // The second pass: the result goes where the first one meant it to.
    action deliver_to_one() {
        hdr.bridge.purpose = PURPOSE_REPLY;
        traffic.ucast_egress_port = hdr.bridge.port;
    }

    action deliver_to_all() {
        hdr.bridge.purpose = PURPOSE_COPY;
        traffic.mcast_grp_a = hdr.bridge.group;
    }

    table replies {
        key = {
            meta.outcome: exact;
            hdr.bridge.purpose: exact;
        }
        actions = {
            complete; answer; remind; reject; drop; deliver_to_one; deliver_to_all; NoAction;
        }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_WAITING,   PURPOSE_FORWARD):   drop();
            (OUTCOME_COMPLETED, PURPOSE_FORWARD):   complete();
            (OUTCOME_ANSWERED,  PURPOSE_FORWARD):   answer();
            (OUTCOME_PENDING,   PURPOSE_FORWARD):   remind();
            (OUTCOME_STALE,     PURPOSE_FORWARD):   reject();
            (OUTCOME_DELIVERED, PURPOSE_AGAIN):     deliver_to_one();
            (OUTCOME_DELIVERED, PURPOSE_AGAIN_ALL): deliver_to_all();
            (OUTCOME_OVERTAKEN, PURPOSE_AGAIN):     drop();
            (OUTCOME_OVERTAKEN, PURPOSE_AGAIN_ALL): drop();
        }
        size = 16;
    }

#if __TARGET_TOFINO__ == 1
    action again(bit<9> port) {
        traffic.ucast_egress_port = port;
    }

    // A result passes the ingress twice, in the pipe that has its cell.
    table recirculation {
        key = {
            meta.outcome: ternary;
            standard.ingress_port: ternary;
        }
        actions = { again; NoAction; }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_COMPLETED, PIPE(0)): again(RECIRCULATION_PORT(0));
            (OUTCOME_COMPLETED, PIPE(1)): again(RECIRCULATION_PORT(1));
            (OUTCOME_COMPLETED, PIPE(2)): again(RECIRCULATION_PORT(2));
            (OUTCOME_COMPLETED, PIPE(3)): again(RECIRCULATION_PORT(3));
            (OUTCOME_ANSWERED,  PIPE(0)): again(RECIRCULATION_PORT(0));
            (OUTCOME_ANSWERED,  PIPE(1)): again(RECIRCULATION_PORT(1));
            (OUTCOME_ANSWERED,  PIPE(2)): again(RECIRCULATION_PORT(2));
            (OUTCOME_ANSWERED,  PIPE(3)): again(RECIRCULATION_PORT(3));
        }
        size = 8;
    }
#endif

    apply {
        replies.apply();
#if __TARGET_TOFINO__ == 1
        recirculation.apply();
#endif
    }
}

control Aggregation(inout ingress_headers_t hdr, inout ingress_metadata_t meta,
                    in ingress_intrinsic_metadata_t standard,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser,
                    inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Sequence() sequence;
    Arrivals() arrivals;
    Countdown() countdown;
    Members() members;
    Flags() flags;
    Decision() decision;
    Counters() counters;
    Lanes() lanes;
    Reply() reply;

    apply {
        sequence.apply(hdr, meta);
        arrivals.apply(hdr, meta);
        countdown.apply(meta);
        members.apply(meta);
        flags.apply(hdr, meta);
        decision.apply(hdr, meta);
        lanes.apply(hdr, meta);
        reply.apply(hdr, meta, standard, deparser, traffic);
        counters.apply(meta, standard);
    }
}

// On every copy of a result: the address of the worker that it is for.
control Readdress(inout egress_headers_t hdr, in egress_intrinsic_metadata_t standard) {
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
