// What a packet does to its cell, but for the lanes. A control for each register, which touches it once.
//
// A register returns one word. So what several registers have to know of a cell, each keeps for itself:
// `sequence` and `arrived` the sequence number, `missing`, `members`, `counts` and `flags` how many
// contributions are missing. All packets pass them in the same order.

#ifndef INNET_CELLS_P4
#define INNET_CELLS_P4

#include "metadata.p4"

control Sequence(in headers_t hdr, inout metadata_t meta) {
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
    // switch acknowledges: the controller's, from the CPU port. Only Tofino 2 knows here whether a
    // parent's answer is admitted.
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
            (FORM_QUERY,        1, _, _):    look();
            (FORM_AGAIN,        _, _, _):    look();
            (FORM_RESULT,       1, 1, _):    compare();
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

control Arrivals(in headers_t hdr, inout metadata_t meta) {
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

#if __TARGET_TOFINO__ == 2
// Who wants the result's lanes.
control Wants(inout headers_t hdr, in metadata_t meta) {
    Register<bit<32>, bit<16>>(CELLS) wanted;

    RegisterAction<bit<32>, bit<16>, bit<32>>(wanted) start_program = {
        void apply(inout bit<32> held, out bit<32> after) {
            held = meta.worker;
            after = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(wanted) clear_program = {
        void apply(inout bit<32> held, out bit<32> after) {
            held = 0;
            after = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(wanted) join_program = {
        void apply(inout bit<32> held, out bit<32> after) {
            held = held | meta.worker;
            after = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(wanted) look_program = {
        void apply(inout bit<32> held, out bit<32> after) {
            after = held;
        }
    };

    action start() { hdr.bridge.wanted = start_program.execute(meta.cell); }
    action clear() { hdr.bridge.wanted = clear_program.execute(meta.cell); }
    action join() { hdr.bridge.wanted = join_program.execute(meta.cell); }
    action look() { hdr.bridge.wanted = look_program.execute(meta.cell); }

    table wants {
        key = {
            meta.form: ternary;
            meta.age: ternary;
            IS_WANTED(hdr.innet.flags): ternary @name("wants");
        }
        actions = { start; clear; join; look; NoAction; }
        const default_action = NoAction;
        const entries = {
            (FORM_CONTRIBUTION, AGE_NEWER,   1): start();
            (FORM_CONTRIBUTION, AGE_NEWER,   _): clear();
            (FORM_CONTRIBUTION, AGE_CURRENT, 1): join();
            (FORM_CONTRIBUTION, AGE_CURRENT, _): look();
            (FORM_RESULT,       AGE_CURRENT, _): look();
        }
        size = 8;
    }

    apply {
        wants.apply();
    }
}
#endif

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
            BEGINNING_RESULTS_RESTART                                                    \
            (FORM_RESULT,       AGE_CURRENT, _, _, 1, 0): finish();                      \
            (FORM_PENDING,      AGE_CURRENT, _, _, 1, 0): look();                        \
            (FORM_STALE,        AGE_CURRENT, _, _, 1, 0): look();                        \
            (FORM_QUERY,        AGE_CURRENT, _, _, _, _): look();                        \
        }                                                                                \
        size = 64;

control Countdown(inout metadata_t meta) {
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
    // The parent's result is the last contribution. It comes without this switch's own sum, if others
    // made a quorum.
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) finish_program = {
        void apply(inout bit<16> held, out bit<16> before) {
            before = held;
            held = 0;
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
control Members(inout metadata_t meta) {
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
            if (held.missing != 0) {
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

struct counts_t {
    bit<16> missing;
    bit<16> workers;
}

// How many workers are in the sum.
control Counts(in headers_t hdr, inout metadata_t meta) {
    Register<counts_t, bit<16>>(CELLS) counts;

    RegisterAction<counts_t, bit<16>, bit<16>>(counts) restart_program = {
        void apply(inout counts_t held, out bit<16> after) {
            held.missing = (bit<16>) meta.quorum - 1;
            held.workers = hdr.innet.count;
            after = held.workers;
        }
    };
    RegisterAction<counts_t, bit<16>, bit<16>>(counts) count_program = {
        void apply(inout counts_t held, out bit<16> after) {
            if (held.missing != 0) {
                held.workers = held.workers + hdr.innet.count;
            }
            held.missing = held.missing |-| 1;
            after = held.workers;
        }
    };
    RegisterAction<counts_t, bit<16>, bit<16>>(counts) look_program = {
        void apply(inout counts_t held, out bit<16> after) {
            after = held.workers;
        }
    };
    RegisterAction<counts_t, bit<16>, bit<16>>(counts) finish_program = {
        void apply(inout counts_t held) {
            if (held.missing != 0) {
                held.workers = hdr.innet.count;
                held.missing = 0;
            }
        }
    };

    action restart() { meta.count = restart_program.execute(meta.cell); }
    action count() { meta.count = count_program.execute(meta.cell); }
    action look() { meta.count = look_program.execute(meta.cell); }
    action finish() { finish_program.execute(meta.cell); }

    table summed { BY_REPETITION }

    apply {
        summed.apply();
    }
}

struct flags_t {
    bit<16> missing;
    bit<16> flags;
}

control Flags(in headers_t hdr, inout metadata_t meta) {
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
            if (held.missing != 0) {
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

#endif
