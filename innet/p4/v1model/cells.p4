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
        } else {
            if (meta.form == FORM_CONTRIBUTION || meta.form == FORM_RESULT) {
                @atomic {
                    sequence.read(held, meta.cell);
                    sequence.write(meta.cell, hdr.innet.sequence > held ? hdr.innet.sequence : held);
                }
            } else {
                look();
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
    register<bitmap_t>(CELLS) arrived;

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
        // A result that begins a chunk leaves the bits of an older one: it is finished, and needs none.
        if (meta.form == FORM_CONTRIBUTION) {
            if (meta.age == AGE_NEWER) {
                restart();
            } else {
                join();
            }
        }
    }
}

// Who wants the result's lanes.
control Wants(in headers_t hdr, inout metadata_t meta) {
    register<bitmap_t>(CELLS) wanted;

    action restart() {
        wanted.write(meta.cell, meta.wanted);
    }

    bitmap_t held;

    action join() {
        @atomic {
            wanted.read(held, meta.cell);
            meta.wanted = meta.wanted | held;
            wanted.write(meta.cell, meta.wanted);
        }
    }

    action look() {
        wanted.read(meta.wanted, meta.cell);
    }

    apply {
        meta.wanted = IS_WANTED(hdr.innet.flags) == 1 ? meta.worker : 0;
        if (meta.form != FORM_CONTRIBUTION) {
            look();
        } else if (meta.age == AGE_NEWER) {
            restart();
        } else {
            join();
        }
        // Without its lanes, a result is of no use to those who want them.
        if (meta.form == FORM_WITHHELD && meta.wanted != 0) {
            meta.form = FORM_NONE;
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

    // The parent's result is the last contribution. It comes without this switch's own sum, if others
    // made a quorum.
    action finish() {
        @atomic {
            missing.read(meta.missing, meta.cell);
            missing.write(meta.cell, 0);
        }
    }

    // Without its lanes, it counts only as the last.
    action finish_bare() {
        @atomic {
            missing.read(meta.missing, meta.cell);
            missing.write(meta.cell, meta.missing == 1 ? 8w0 : meta.missing);
        }
    }

    action look() {
        missing.read(meta.missing, meta.cell);
    }

    apply {
        if (meta.form == FORM_CONTRIBUTION && meta.age == AGE_NEWER) {
            restart();
            meta.part = PART_FIRST;
        } else if (meta.form == FORM_RESULT) {
            finish();
            if (meta.age == AGE_NEWER || meta.missing != 0) {
                meta.part = PART_FIRST;
            }
        } else if (meta.form == FORM_WITHHELD && meta.age == AGE_CURRENT) {
            finish_bare();
            if (meta.missing == 1) {
                meta.part = PART_FIRST;
            }
        } else if (meta.form == FORM_CONTRIBUTION && meta.repeated == 0) {
            count();
            if (meta.missing != 0) {
                meta.part = PART_MORE;
            }
        } else {
            look();
        }
    }
}

// Whether the cell has lanes. Before it has, they are an older chunk's; the first that come replace them.
control Carriage(in headers_t hdr, inout metadata_t meta) {
    register<bit<1>>(CELLS) carried;

    action restart() {
        carried.write(meta.cell, (bit<1>) hdr.lanes.isValid());
    }

    action join() {
        @atomic {
            carried.read(meta.carried, meta.cell);
            carried.write(meta.cell, meta.carried | (bit<1>) hdr.lanes.isValid());
        }
    }

    action look() {
        carried.read(meta.carried, meta.cell);
    }

    apply {
        if (meta.part == PART_FIRST) {
            restart();
        } else if (meta.part == PART_MORE) {
            join();
        } else {
            look();
        }
    }
}

// How many workers are in the sum.
control Counts(in headers_t hdr, inout metadata_t meta) {
    register<bit<16>>(CELLS) counts;

    action start() {
        meta.count = hdr.innet.count;
        counts.write(meta.cell, meta.count);
    }

    action add() {
        @atomic {
            counts.read(meta.count, meta.cell);
            meta.count = meta.count + hdr.innet.count;
            counts.write(meta.cell, meta.count);
        }
    }

    action read() {
        counts.read(meta.count, meta.cell);
    }

    apply {
        if (meta.part == PART_FIRST) {
            start();
        } else if (meta.part == PART_MORE) {
            add();
        } else {
            read();
        }
    }
}

// Who is in the sum. `arrived` goes on collecting those who come after the quorum.
control Members(inout metadata_t meta) {
    register<bitmap_t>(CELLS) members;

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
        if (meta.fold == FOLD_COMBINE && hdr.innet.operation == OPERATION_SUM) {
            find_overflow();
        }
        if (meta.part == PART_FIRST) {
            start();
        } else if (meta.part == PART_MORE) {
            combine();
        } else if (meta.age == AGE_CURRENT) {
            read();
        }
    }
}

#endif
