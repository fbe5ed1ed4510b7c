// The slot state machine; docs/slot-protocol.md walks through it row by row.

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
        BEFORE_READING_LANES
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
        BEFORE_READING_LANES
    }

    action ignore() {
        meta.outcome = OUTCOME_IGNORED;
    }

    // A newer packet starts the countdown again without reading it, so the quorum takes its place.
    @name("decision")
    table decision {
        key = {
            meta.form: ternary @name("form");
            meta.age: ternary @name("age");
            meta.repeated: ternary @name("repeated");
            meta.missing: ternary @name("missing");
            meta.quorum: ternary @name("quorum");
        }
        actions = { wait; complete; answer; remind; reject; SECOND_PASS_ACTIONS NoAction; }
        const default_action = NoAction;
        const entries = {
            // form             age          repeated missing quorum
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 1): complete(FOLD_START);    // a job of one worker
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _): wait(FOLD_START);        // the first of a new chunk
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _): answer();                // finished: late, or asks again
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _): complete(FOLD_COMBINE);  // the last that was missing
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _): wait(FOLD_COMBINE);      // one more
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _): remind();                // had it; others are missing
            (FORM_CONTRIBUTION, AGE_STALE,   _, _, _): reject();
            SECOND_PASS_ENTRIES
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
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 2): raise_sum(FOLD_START);    // the only one below
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _): wait(FOLD_START);         // the first of a new chunk
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _): answer();                 // finished
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _): raise_sum(FOLD_COMBINE);  // the last from below
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _): wait(FOLD_COMBINE);       // one more
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 1, _): raise_again();            // sum or answer was lost
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _): remind();                 // others below are missing
            (FORM_CONTRIBUTION, _,           _, _, _): reject();
            (FORM_RESULT,       AGE_CURRENT, _, 1, _): complete(FOLD_START);     // the cell keeps it
            (FORM_PENDING,      AGE_CURRENT, _, 1, _): remind();                 // others above are missing
            (FORM_STALE,        AGE_CURRENT, _, 1, _): reject();                 // all below are left behind
        }
        size = 16;
    }
