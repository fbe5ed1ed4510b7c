// The slot state machine; docs/slot-protocol.md walks through it row by row.

    action wait(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_WAITING;
    }

    action complete(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_COMPLETED;
    }

    // What goes out has the cell's lanes, which the packet lacks.
    // The parent's result, before the sum of this switch is complete: others made a quorum. Some below
    // have not said yet whether they want the lanes, so all of them get these.
    action complete_early(bit<4> fold) {
        complete(fold);
        FOR_EVERYBODY
    }

    action complete_from_cell() {
        complete(FOLD_READ);
        BEFORE_READING_LANES
    }

    action answer() {
        meta.fold = FOLD_READ;
        meta.outcome = OUTCOME_ANSWERED;
        BEFORE_READING_LANES
    }

    action answer_bare() {
        meta.outcome = OUTCOME_ANSWERED;
        hdr.lanes.setInvalid();
    }

    action remind() {
        meta.outcome = OUTCOME_PENDING;
        hdr.lanes.setInvalid();
    }

    action reject() {
        meta.outcome = OUTCOME_STALE;
        hdr.lanes.setInvalid();
    }

    action raise_sum(bit<4> fold) {
        meta.fold = fold;
        meta.outcome = OUTCOME_RAISED;
        ASK_FOR_LANES
    }

    action raise_from_cell() {
        raise_sum(FOLD_READ);
        BEFORE_READING_LANES
    }

    // The sum, or its answer, was lost. The reply adds the cell's flags to the packet's.
    action raise_again() {
        hdr.innet.flags = 0;
        raise_sum(FOLD_READ);
        BEFORE_READING_LANES
    }

    action raise_bare_again() {
        hdr.innet.flags = 0;
        raise_sum(FOLD_NONE);
        hdr.lanes.setInvalid();
    }

    action ignore() {
        meta.outcome = OUTCOME_IGNORED;
    }

    action ask() {
        meta.outcome = OUTCOME_ASKED;
    }

    // A newer packet starts the countdown again without reading it, so the quorum takes its place.
    #define DECISION_KEY                                                                 \
        key = {                                                                          \
            meta.form: ternary @name("form");                                            \
            meta.age: ternary @name("age");                                              \
            meta.repeated: ternary @name("repeated");                                    \
            meta.missing: ternary @name("missing");                                      \
            meta.quorum: ternary @name("quorum");                                        \
            hdr.lanes.isValid(): ternary @name("lanes");                                 \
            CELL_HAS_LANES: ternary @name("carried");                                    \
            IS_WANTED(hdr.innet.flags): ternary @name("wants");                          \
        }

    // The columns: form, age, repeated, missing, quorum; whether the packet has lanes, the cell has
    // lanes, and the packet's sender wants the result's.
    @name("decision")
    table decision {
        DECISION_KEY
        actions = {
            wait; complete; complete_from_cell; answer; answer_bare; remind; reject;
            ignore; SECOND_PASS_ACTIONS NoAction;
        }
        const default_action = NoAction;
        const entries = {
            // A job of one worker.
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 1, true,  _, _): complete(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 1, _,     _, _): complete(FOLD_NONE);
            // The first of a new chunk.
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _, true,  _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _, _,     _, _): wait(FOLD_NONE);
            // The chunk is finished: the worker is late, or asks again.
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _, _,     1, 1): answer();
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _, _,     _, _): answer_bare();
            // The last that was missing.
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _, true,  1, _): complete(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _, true,  _, _): complete(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _, _,     1, _): complete_from_cell();
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 1, _, _,     _, _): complete(FOLD_NONE);
            // One more.
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, true,  1, _): wait(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, true,  _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, _,     _, _): wait(FOLD_NONE);
            // The cell had it; others are missing.
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _, _,     _, _): remind();
            (FORM_CONTRIBUTION, AGE_STALE,   _, _, _, _,     _, _): reject();
            // A query changes nothing.
            (FORM_QUERY,        AGE_CURRENT, _, 0, _, _,     1, 1): answer();
            (FORM_QUERY,        AGE_CURRENT, _, 0, _, _,     _, _): answer_bare();
            (FORM_QUERY,        AGE_CURRENT, _, _, _, _,     _, _): ignore();
            (FORM_QUERY,        AGE_NEWER,   _, _, _, _,     _, _): ignore();
            (FORM_QUERY,        AGE_STALE,   _, _, _, _,     _, _): reject();
            SECOND_PASS_ENTRIES
        }
        size = 32;
    }

    // The same where the sum goes up: the last of the contributions from below raises it, and what comes
    // down finishes the chunk.
    @name("decision_below")
    table decision_below {
        DECISION_KEY
        actions = {
            wait; raise_sum; raise_from_cell; raise_again; raise_bare_again; complete; answer;
            complete_early; answer_bare; remind; reject; ask; ignore;
        }
        const default_action = ignore;
        const entries = {
            // The only one below.
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 2, true,  _, _): raise_sum(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, 2, _,     _, _): raise_sum(FOLD_NONE);
            // The first of a new chunk.
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _, true,  _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_NEWER,   _, _, _, _,     _, _): wait(FOLD_NONE);
            // The chunk is finished.
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _, _,     1, 1): answer();
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 0, _, _,     _, _): answer_bare();
            // The last from below.
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _, true,  1, _): raise_sum(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _, true,  _, _): raise_sum(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _, _,     1, _): raise_from_cell();
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, 2, _, _,     _, _): raise_sum(FOLD_NONE);
            // One more.
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, true,  1, _): wait(FOLD_COMBINE);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, true,  _, _): wait(FOLD_START);
            (FORM_CONTRIBUTION, AGE_CURRENT, 0, _, _, _,     _, _): wait(FOLD_NONE);
            // The sum, or its answer, was lost.
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 1, _, _,     1, _): raise_again();
            (FORM_CONTRIBUTION, AGE_CURRENT, _, 1, _, _,     _, _): raise_bare_again();
            // The cell had it; others below are missing.
            (FORM_CONTRIBUTION, AGE_CURRENT, _, _, _, _,     _, _): remind();
            (FORM_CONTRIBUTION, _,           _, _, _, _,     _, _): reject();
            // What the parent says: the result, which the cell keeps; that others above are missing; that
            // all below are left behind.
            (FORM_RESULT,       AGE_CURRENT, _, 1, _, true,  _, _): complete(FOLD_START);
            (FORM_RESULT,       AGE_CURRENT, _, 1, _, _,     _, _): complete(FOLD_NONE);
            (FORM_PENDING,      AGE_CURRENT, _, 1, _, _,     _, _): remind();
            // A quorum has done without this switch's sum.
            (FORM_RESULT,       AGE_CURRENT, _, 0, _, _,     _, _): ignore();
            (FORM_RESULT,       AGE_CURRENT, _, _, _, true,  _, _): complete_early(FOLD_START);
            (FORM_RESULT,       AGE_CURRENT, _, _, _, _,     _, _): complete_early(FOLD_NONE);
            BEGINNING_RESULTS
            LACKING_RESULTS
            (FORM_STALE,        AGE_CURRENT, _, 0, _, _,     _, _): ignore();
            (FORM_STALE,        AGE_CURRENT, _, _, _, _,     _, _): reject();
            (FORM_STALE,        AGE_NEWER,   _, _, _, _,     _, _): reject();
            // A query changes nothing.
            (FORM_QUERY,        AGE_CURRENT, _, 0, _, _,     1, 1): answer();
            (FORM_QUERY,        AGE_CURRENT, _, 0, _, _,     _, _): answer_bare();
            (FORM_QUERY,        AGE_STALE,   _, _, _, _,     _, _): reject();
            (FORM_QUERY,        _,           _, _, _, _,     _, _): ask();
        }
        size = 64;
    }
