// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// The same as v1model's, in as few stages as the chip has. What a stage has to wait for is on its left:
//
//     Admission    who is this, and may it contribute?              table `workers`
//      └▶ Tree        does its sum go up to a parent?               table `trees`
//         Sequence    stale, current or newer than the cell?        registers `sequence`
//         Arrivals    who had contributed before?                   register `arrived`
//          └▶ Countdown    how many contributions were missing?     register `missing`
//             Members      who was in the sum?                      register `members`
//             Flags        what did they say of themselves?         register `flags`
//              └▶ Decision    the truth table                       tables `decision*`, constant
//                  └▶ Lanes      start, combine or read             registers `cell_*`
//                     Reply      result to all; an answer to one; the sum to the parent
//                     Counters   which of these it was
//
// A switch that has a parent for a slot waits for one contribution more than there are contributors
// below it: the parent's answer, which takes the same way.
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
        meta.admitted = 1;
        meta.worker = worker;
        meta.quorum = quorum;
        meta.total = quorum;
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

// Of jobs that several switches sum.
control Tree(in ingress_headers_t hdr, inout ingress_metadata_t meta,
             in ingress_intrinsic_metadata_t standard) {
    // The sum of these slots goes up: where, and in which name.
    action below(bit<9> port, bit<48> mac, bit<32> address, bit<8> total, bit<32> elsewhere,
                 bit<16> group, bit<8> job_index) {
        meta.below = 1;
        meta.uplink = port;
        meta.astray = standard.ingress_port ^ port;
        meta.uplink_mac = mac;
        meta.uplink_address = address;
        meta.total = total;
        meta.elsewhere = elsewhere;
        meta.group = group;
        meta.job_index = job_index;
    }

    // It does not, but switches contribute: a result is of so many workers. (Without an entry, of as many
    // as there are contributions.)
    action top(bit<8> total) {
        meta.total = total;
    }

    @name("trees")
    table trees {
        key = {
            hdr.innet.job: exact @name("job");
            hdr.innet.epoch: exact @name("epoch");
            hdr.innet.slot: lpm @name("slot");
        }
        actions = { below; top; NoAction; }
        const default_action = NoAction;
        size = 1024;
    }

    apply {
        if (meta.admitted == 1 || (meta.above == 1 && !meta.damaged && IS_ANSWER(meta.form))) {
            trees.apply();
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
    // switch acknowledges: the controller's, from the CPU port. A parent's answer begins nothing: only
    // to what is waited for it is of use.
    table compared {
        key = {
            meta.form: ternary;
            meta.admitted: ternary;
            meta.above: ternary;
            hdr.packet_in.isValid(): ternary @name("acknowledged");
        }
        actions = { compare; look; clear; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FORM_CLEAR,        _, _, true): clear();
            (FORM_CONTRIBUTION, 1, _, _):    compare();
            (FORM_AGAIN,        _, _, _):    look();
            (FORM_RESULT,       _, 1, _):    look();
            (FORM_PENDING,      _, 1, _):    look();
            (FORM_STALE,        _, 1, _):    look();
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
            meta.admitted: ternary;
            hdr.packet_in.isValid(): ternary @name("acknowledged");
        }
        actions = { join; clear; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FORM_CLEAR,        _, true): clear();
            (FORM_CONTRIBUTION, 1, _):    join();
        }
        size = 16;
    }

    apply {
        joined.apply();
    }
}

// The rows of a table that asks whether one of a worker's own bits is in a bitmap.
#define BIT_ROW(n, action) \
    (FORM_CONTRIBUTION, AGE_CURRENT, 32w1 << n &&& 32w1 << n, 32w1 << n &&& 32w1 << n, _, _): action;
#define FOR_EACH_BIT(M, action)                                                          \
    M(0, action) M(1, action) M(2, action) M(3, action) M(4, action) M(5, action)        \
    M(6, action) M(7, action) M(8, action) M(9, action) M(10, action) M(11, action)      \
    M(12, action) M(13, action) M(14, action) M(15, action) M(16, action) M(17, action)  \
    M(18, action) M(19, action) M(20, action) M(21, action) M(22, action) M(23, action)  \
    M(24, action) M(25, action) M(26, action) M(27, action) M(28, action) M(29, action)  \
    M(30, action) M(31, action)

// A parent's answer is heard at the uplink that the slot's sum goes to, and nowhere else.
#define BY_REPETITION                                                                    \
        key = {                                                                          \
            meta.form: ternary;                                                          \
            meta.age: ternary;                                                           \
            meta.arrived: ternary;                                                       \
            meta.worker: ternary;                                                        \
            meta.below: ternary;                                                         \
            meta.astray: ternary;                                                        \
        }                                                                                \
        actions = { restart; count; look; finish; NoAction; }                            \
        const default_action = NoAction;                                                 \
        const entries = {                                                                \
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _, _): restart();                     \
            FOR_EACH_BIT(BIT_ROW, look())                                                \
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _, _): count();                       \
            (FORM_RESULT,       AGE_CURRENT, _, _, 1, 0): finish();                      \
            (FORM_PENDING,      AGE_CURRENT, _, _, 1, 0): look();                        \
            (FORM_STALE,        AGE_CURRENT, _, _, 1, 0): look();                        \
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
    // The parent's answer is the last contribution, and counts only as that.
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) finish_program = {
        void apply(inout bit<16> held, out bit<16> before) {
            before = held;
            if (held == 1) {
                held = 0;
            }
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
    action finish() { meta.missing = finish_program.execute(meta.cell); }

    table counted { BY_REPETITION }

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
    RegisterAction<members_t, bit<16>, bit<32>>(members) finish_program = {
        void apply(inout members_t held) {
            if (held.missing == 1) {
                held.workers = meta.worker;
                held.missing = 0;
            }
        }
    };

    action restart() {
        restart_program.execute(meta.cell);
        meta.members = 0;
    }
    action count() { meta.members = count_program.execute(meta.cell); }
    action look() { meta.members = look_program.execute(meta.cell); }
    action finish() { finish_program.execute(meta.cell); }

    table collected { BY_REPETITION }

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
    RegisterAction<flags_t, bit<16>, bit<16>>(flags) finish_program = {
        void apply(inout flags_t held) {
            if (held.missing == 1) {
                held.flags = hdr.innet.flags;
                held.missing = 0;
            }
        }
    };

    action restart() {
        restart_program.execute(meta.cell);
        meta.flags = 0;
    }
    action count() { meta.flags = count_program.execute(meta.cell); }
    action look() { meta.flags = look_program.execute(meta.cell); }
    action finish() { finish_program.execute(meta.cell); }

    table flagged { BY_REPETITION }

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

    action raise_sum(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_RAISED;
    }

    // The sum, or its answer, was lost. The reply adds the cell's flags to the packet's.
    action raise_again() {
        raise_sum(FOLD_READ);
        hdr.innet.flags = 0;
#if __TARGET_TOFINO__ == 1
        FOR_EACH_LANE(ZERO_LANE)
#endif
    }

    action ignore() {
        meta.outcome = OUTCOME_IGNORED;
    }

    action refuse() {
        meta.refused = 1;
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

    // The same where the sum goes up: the last of the contributions from below raises it, and what comes
    // down finishes the chunk.
    @name("decision_below")
    table decision_below {
        key = {
            meta.form: ternary @name("form");
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
            meta.quorum: ternary @name("quorum");
        }
        actions = { wait; raise_sum; raise_again; complete; answer; remind; reject; ignore; }
        const default_action = ignore;
        const entries = {
            // form             age          repeated missing quorum
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 2): raise_sum(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _): answer();
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _): raise_sum(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _): wait(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 1, _): raise_again();
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _): remind();
            (FORM_CONTRIBUTION, _,           _, _, _): reject();
            (FORM_RESULT,       AGE_CURRENT, _, 1, _): complete(FOLD_START);
            (FORM_PENDING,      AGE_CURRENT, _, 1, _): remind();
            (FORM_STALE,        AGE_CURRENT, _, 1, _): reject();
        }
        size = 16;
    }

    apply {
        if (meta.above == 1 && !meta.damaged && (meta.below == 0 || meta.astray != 0)) {
            refuse();  // not an answer, or not of the parent that this slot's sum goes to
        } else if (meta.below == 1) {
            decision_below.apply();
        } else {
            decision.apply();
        }
    }
}

control Counters(in ingress_metadata_t meta, in ingress_intrinsic_metadata_t standard) {
    // By ingress port: innet packets for this switch that have no form, or that no entry of `workers`
    // allows.
    @name("refused")   Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS) refused;
    // By outcome and job_index, OUTCOME_* * JOBS + job_index.
    @name("outcomes")  Counter<bit<32>, bit<12>>(16 * JOBS, CounterType_t.PACKETS) outcomes;

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
        hdr.innet.count = meta.total;
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
        hdr.innet.workers = meta.members | meta.elsewhere;  // of those nothing is known here
        to_one();
    }

    action reject() {
        turn_around(KIND_STALE);
        hdr.innet.workers = 0;
        to_one();
    }

    // The sum goes on in this switch's name, to the address that the contribution was sent to: a parent
    // has the same.
    action go_up() {
        hdr.ethernet.destination = meta.my_mac;
        hdr.ethernet.source = meta.uplink_mac;
        hdr.ipv4.source = meta.uplink_address;
        hdr.ipv4.time_to_live = 64;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.checksum = 0;
        hdr.innet.flags = hdr.innet.flags | meta.flags;
        hdr.innet.check = 0;
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN;
        hdr.bridge.port = meta.uplink;
#else
        hdr.bridge.purpose = PURPOSE_REPLY;
        traffic.ucast_egress_port = meta.uplink;
#endif
    }

    // Who has sent it, and what it says, is right already; the copies get their addresses.
    action go_down() {
        hdr.ipv4.time_to_live = 64;
        hdr.innet.check = 0;
        hdr.bridge.purpose = PURPOSE_COPY;
        traffic.mcast_grp_a = meta.group;
    }

    action drop() {
        deparser.drop_ctl = 1;
    }

    // The second pass: the result, or the sum, goes where the first one meant it to.
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
            meta.above: exact;
            hdr.bridge.purpose: exact;
        }
        actions = {
            complete; answer; remind; reject; go_up; go_down; drop; deliver_to_one; deliver_to_all;
            NoAction;
        }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_WAITING,   0, PURPOSE_FORWARD):   drop();
            (OUTCOME_COMPLETED, 0, PURPOSE_FORWARD):   complete();
            (OUTCOME_ANSWERED,  0, PURPOSE_FORWARD):   answer();
            (OUTCOME_PENDING,   0, PURPOSE_FORWARD):   remind();
            (OUTCOME_STALE,     0, PURPOSE_FORWARD):   reject();
            (OUTCOME_RAISED,    0, PURPOSE_FORWARD):   go_up();
            (OUTCOME_COMPLETED, 1, PURPOSE_FORWARD):   go_down();
            (OUTCOME_PENDING,   1, PURPOSE_FORWARD):   go_down();
            (OUTCOME_STALE,     1, PURPOSE_FORWARD):   go_down();
            (OUTCOME_IGNORED,   1, PURPOSE_FORWARD):   drop();
            (OUTCOME_DELIVERED, 0, PURPOSE_AGAIN):     deliver_to_one();
            (OUTCOME_DELIVERED, 0, PURPOSE_AGAIN_ALL): deliver_to_all();
            (OUTCOME_OVERTAKEN, 0, PURPOSE_AGAIN):     drop();
            (OUTCOME_OVERTAKEN, 0, PURPOSE_AGAIN_ALL): drop();
        }
        size = 16;
    }

#if __TARGET_TOFINO__ == 1
    action again(bit<9> port) {
        traffic.ucast_egress_port = port;
    }

    // What goes out with the cell's lanes passes the ingress twice, in the pipe that has the cell. What a
    // parent sends has all lanes.
    table recirculation {
        key = {
            meta.outcome: ternary;
            meta.above: ternary;
            standard.ingress_port: ternary;
        }
        actions = { again; NoAction; }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_COMPLETED, 0, PIPE(0)): again(RECIRCULATION_PORT(0));
            (OUTCOME_COMPLETED, 0, PIPE(1)): again(RECIRCULATION_PORT(1));
            (OUTCOME_COMPLETED, 0, PIPE(2)): again(RECIRCULATION_PORT(2));
            (OUTCOME_COMPLETED, 0, PIPE(3)): again(RECIRCULATION_PORT(3));
            (OUTCOME_ANSWERED,  _, PIPE(0)): again(RECIRCULATION_PORT(0));
            (OUTCOME_ANSWERED,  _, PIPE(1)): again(RECIRCULATION_PORT(1));
            (OUTCOME_ANSWERED,  _, PIPE(2)): again(RECIRCULATION_PORT(2));
            (OUTCOME_ANSWERED,  _, PIPE(3)): again(RECIRCULATION_PORT(3));
            (OUTCOME_RAISED,    _, PIPE(0)): again(RECIRCULATION_PORT(0));
            (OUTCOME_RAISED,    _, PIPE(1)): again(RECIRCULATION_PORT(1));
            (OUTCOME_RAISED,    _, PIPE(2)): again(RECIRCULATION_PORT(2));
            (OUTCOME_RAISED,    _, PIPE(3)): again(RECIRCULATION_PORT(3));
        }
        size = 16;
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
    Tree() tree;
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
        tree.apply(hdr, meta, standard);
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

// On every copy of a result: the address of the worker, or of the switch below, that it is for.
control Readdress(inout egress_headers_t hdr, in egress_intrinsic_metadata_t standard) {
    action address_to(bit<48> mac, bit<32> address, bit<16> udp_port) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = address;
        hdr.udp.destination = udp_port;
    }

    // A copy's instance number in the job's multicast group is its worker's bit index plus 1; those
    // from 33 on are of switches below.
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
