// What a packet does to its cell, but for the lanes. A control for each register, which touches it once.

#ifndef INNET_CELLS_P4
#define INNET_CELLS_P4

#include "metadata.p4"

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

control Arrivals(inout metadata_t meta) {
    register<bit<32>>(CELLS) arrived;

    action restart() {
        arrived.write(meta.cell, meta.worker);
    }

    action join() {
        @atomic {
            arrived.read(meta.arrived, meta.cell);
            arrived.write(meta.cell, meta.arrived | meta.worker);
        }
        meta.repeated = (bit<1>) ((meta.arrived & meta.worker) != 0);
    }

    apply {
        if (meta.age == AGE_NEWER) {
            restart();
        } else if (meta.above == 0) {
            join();
        }
    }
}

control Countdown(inout metadata_t meta) {
    register<bit<8>>(CELLS) missing;

    action restart() {
        missing.write(meta.cell, meta.quorum - 1);
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

// Who is in the sum. `arrived` goes on collecting those who come after the quorum.
control Members(inout metadata_t meta) {
    register<bit<32>>(CELLS) members;

    action keep() {
        members.write(meta.cell, meta.members | meta.worker);
    }

    action recall() {
        members.read(meta.members, meta.cell);
    }

    apply {
        meta.members = meta.arrived;
        if (meta.outcome == OUTCOME_COMPLETED) {
            keep();
        } else if (meta.outcome == OUTCOME_ANSWERED) {
            recall();
        }
    }
}

// The sign bit of what is or-ed is set for the lowest and the highest number, and for no other.
#define LANE_LIMIT(n)                                                                  \
    meta.limit = meta.limit | ((hdr.lanes.lane_##n                                     \
        ^ (bit<32>) ((int<32>) hdr.lanes.lane_##n >> 31)) + 1);

control Flags(inout headers_t hdr, inout metadata_t meta) {
    register<bit<16>>(CELLS) flags;

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
            flags.read(meta.flags, meta.cell);
            flags.write(meta.cell, meta.flags | hdr.innet.flags);
        }
    }

    action read() {
        flags.read(meta.flags, meta.cell);
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

#endif
