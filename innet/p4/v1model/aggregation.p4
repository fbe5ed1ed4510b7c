// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// A contribution passes these controls in this order; each touches its register once:
//
//     Admission    who is this, and may it contribute?      table `workers`
//                  does its sum go up to a parent?          table `trees`
//     Sequence     stale, current or newer than the cell?   register `sequence`
//     Arrivals     who has contributed; was it in already?  register `arrived`
//     Countdown    how many contributions were missing?     register `missing`
//     Decision     the truth table                          tables `decision*`, constant
//     Members      who is in a finished sum                 register `members`
//     Lanes        start, combine or read                   registers `cell_*`
//     Flags        what any contribution says of itself     register `flags`
//     Reply        result to all, or an answer to one       multicast group of the job
//
// A switch that has a parent for a slot waits for one contribution more than there are contributors
// below it: the parent's answer, which takes the same way.

#ifndef INNET_AGGREGATION_P4
#define INNET_AGGREGATION_P4

#include "metadata.p4"
#include "../shared/headers.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    // By ingress port: innet packets for this switch that have no form, or that no entry of `workers`
    // allows.
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

    // Of jobs that several switches sum. The sum of these slots goes up: where, and in which name.
    action below(bit<9> port, bit<48> mac, bit<32> address, bit<8> total, bit<32> elsewhere,
                 bit<16> group, bit<8> job_index) {
        meta.below = 1;
        meta.uplink = port;
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
        if (meta.form == FORM_CONTRIBUTION && meta.above == 0) {
            workers.apply();
            meta.total = meta.quorum;
        }
        if (meta.above == 1 || meta.admitted == 1) {
            trees.apply();
        }
        if (meta.above == 1) {
            // An answer is heard from the very parent that this slot's sum goes to.
            if (meta.below == 1 && meta.uplink == standard.ingress_port
                && (meta.form == FORM_RESULT || meta.form == FORM_PENDING
                    || meta.form == FORM_STALE)) {
                meta.admitted = 1;
            } else {
                refuse();
            }
        } else if (meta.form != FORM_CONTRIBUTION) {
            refuse();
        }
    }
}

control Sequence(in headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(CELLS) sequence;

    // Sequence numbers start at 1: whatever comes next is newer.
    action clear() {
        sequence.write(meta.cell, 0);
    }

    bit<32> held;

    action look() {
        sequence.read(held, meta.cell);
    }

    apply {
        if (hdr.packet_out.isValid()) {
            clear();
        } else if (meta.above == 1) {
            // No answer begins anything: only to what is waited for it is of use.
            look();
            meta.age = hdr.innet.sequence == held ? AGE_CURRENT : AGE_STALE;
        } else {
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

control Arrivals(in headers_t hdr, inout metadata_t meta) {
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
        if (meta.above == 1) {
            meta.arrived = hdr.innet.workers;
        } else if (meta.age == AGE_NEWER) {
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

    // The parent's answer is the last contribution, and counts only as that.
    action finish() {
        @atomic {
            missing.read(meta.missing, meta.cell);
            missing.write(meta.cell, meta.missing == 1 ? 8w0 : meta.missing);
        }
    }

    action look() {
        missing.read(meta.missing, meta.cell);
    }

    apply {
        if (meta.age == AGE_NEWER) {
            restart();
        } else if (meta.form == FORM_RESULT) {
            finish();
        } else if (meta.form == FORM_CONTRIBUTION && meta.repeated == 0) {
            count();
        } else {
            look();
        }
    }
}

control Decision(inout metadata_t meta) {
    // By job_index. Every packet that is admitted counts in exactly one.
    @name("waiting")   counter(JOBS, CounterType.packets) waiting;
    @name("completed") counter(JOBS, CounterType.packets) completed;
    @name("answered")  counter(JOBS, CounterType.packets) answered;
    @name("pending")   counter(JOBS, CounterType.packets) pending;
    @name("stale")     counter(JOBS, CounterType.packets) stale;
    @name("raised")    counter(JOBS, CounterType.packets) raised;
    @name("ignored")   counter(JOBS, CounterType.packets) ignored;

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

    action reject() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_STALE;
        stale.count((bit<32>) meta.job_index);
    }

    action raise_sum(bit<2> fold) {
        meta.fold = fold;
        meta.reply = REPLY_UP;
        raised.count((bit<32>) meta.job_index);
    }

    action remind_all() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_DOWN;
        pending.count((bit<32>) meta.job_index);
    }

    action reject_all() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_DOWN;
        stale.count((bit<32>) meta.job_index);
    }

    action ignore() {
        meta.fold = FOLD_NONE;
        meta.reply = REPLY_NONE;
        ignored.count((bit<32>) meta.job_index);
    }

    // The slot state machine; docs/slot-protocol.md walks through it row by row.
    @name("decision")
    table decision {
        key = {
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
        }
        actions = { wait; complete; answer; remind; reject; }
        const default_action = reject;
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

    // The same where the sum goes up: the last of the contributions from below raises it, and what comes
    // down finishes the chunk.
    @name("decision_below")
    table decision_below {
        key = {
            meta.form: ternary @name("form");
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
        }
        actions = { wait; raise_sum; complete; answer; remind; reject; remind_all; reject_all; ignore; }
        const default_action = ignore;
        const entries = {
            // form              age       repeated missing
            (FORM_CONTRIBUTION, AGE_NEWER,   _, 2): raise_sum(FOLD_START);    // the only one below
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _): wait(FOLD_START);         // the first of a new chunk
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0): answer();                 // finished
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2): raise_sum(FOLD_COMBINE);  // the last from below
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _): wait(FOLD_COMBINE);       // one more
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 1): raise_sum(FOLD_READ);     // sum or answer was lost
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _): remind();                 // others below are missing
            (FORM_CONTRIBUTION, _,           _, _): reject();
            (FORM_RESULT,       AGE_CURRENT, _, 1): complete(FOLD_START);     // the cell keeps it
            (FORM_PENDING,      AGE_CURRENT, _, 1): remind_all();             // others above are missing
            (FORM_STALE,        AGE_CURRENT, _, 1): reject_all();             // all below are left behind
        }
    }

    apply {
        if (meta.below == 1) {
            decision_below.apply();
        } else {
            decision.apply();
        }
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

// The sign bit of what is or-ed is set for the lowest and the highest number, and for no other.
#define LANE_LIMIT(n)                                                                  \
    meta.limit = meta.limit | ((hdr.lanes.lane_##n                                     \
        ^ (bit<32>) ((int<32>) hdr.lanes.lane_##n >> 31)) + 1);

control Flags(inout headers_t hdr, inout metadata_t meta) {
    register<bit<16>>(CELLS) flags;
    bit<16> held;

    // An addition that overflows stops at a limit: of sums that are at none, nothing is lost. (To look at
    // the sums takes less than to watch the additions, and lanes of which no host says that they may
    // overflow do not add up to a limit.)
    action find_overflow() {
        FOR_EACH_LANE(LANE_LIMIT)
        hdr.innet.flags = hdr.innet.flags | (FLAG_OVERFLOW & (bit<16>) meta.limit[31:31]);
    }

    action start() {
        flags.write(meta.cell, hdr.innet.flags);
    }

    action combine() {
        @atomic {
            flags.read(held, meta.cell);
            hdr.innet.flags = hdr.innet.flags | held;
            flags.write(meta.cell, hdr.innet.flags);
        }
    }

    action read() {
        flags.read(hdr.innet.flags, meta.cell);
    }

    apply {
        if (meta.fold == FOLD_START) {
            start();
        } else if (meta.fold == FOLD_COMBINE) {
            if (hdr.innet.operation == OPERATION_SUM) {
                find_overflow();
            }
            combine();
        } else if (meta.fold == FOLD_READ) {
            read();
        }
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
        hdr.innet.count = meta.total;
        hdr.innet.workers = meta.arrived;
    }

    // The sum goes on in this switch's name, to the address that the contribution was sent to: a parent
    // has the same.
    action go_up() {
        hdr.ethernet.destination = meta.my_mac;
        hdr.ethernet.source = meta.uplink_mac;
        hdr.ipv4.source = meta.uplink_address;
        hdr.ipv4.time_to_live = 64;
        hdr.udp.source = INNET_UDP_PORT;
        hdr.udp.checksum = 0;
        standard.egress_spec = meta.uplink;
    }

    apply {
        if (meta.above == 1 && meta.reply != REPLY_NONE) {
            // Who sent it, and what it says, is right already; the copies get their addresses.
            hdr.ipv4.time_to_live = 64;
            standard.mcast_grp = meta.group;
        } else if (meta.reply == REPLY_UP) {
            go_up();
        } else if (meta.reply == REPLY_ALL) {
            turn_around(KIND_RESULT);
            standard.mcast_grp = meta.group;
        } else if (meta.reply == REPLY_ONE) {
            turn_around(KIND_RESULT);
            standard.egress_spec = standard.ingress_port;
        } else if (meta.reply == REPLY_PENDING) {
            meta.arrived = meta.arrived | meta.elsewhere;  // of them nothing is known here
            turn_around(KIND_PENDING);
            standard.egress_spec = standard.ingress_port;
        } else if (meta.reply == REPLY_STALE) {
            turn_around(KIND_STALE);
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
    Flags() flags;
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
                    arrivals.apply(hdr, meta);
                    countdown.apply(meta);
                }
                decision.apply(meta);
                members.apply(meta);
                lanes.apply(hdr, meta);
                flags.apply(hdr, meta);
            }
            reply.apply(hdr, meta, standard);
        }
    }
}

// On every copy of a result: the address of the worker, or of the switch below, that it is for.
control Readdress(inout headers_t hdr, in standard_metadata_t standard) {
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
