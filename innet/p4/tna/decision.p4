// What becomes of a contribution, or of a parent's answer, and how often that was.

#ifndef INNET_DECISION_P4
#define INNET_DECISION_P4

#include "metadata.p4"

control Decision(inout headers_t hdr, inout metadata_t meta) {
    action deliver() {
        meta.fold = FOLD_FINISH;
        meta.outcome = OUTCOME_DELIVERED;
    }

    action abandon() {
        meta.outcome = OUTCOME_OVERTAKEN;
    }

    action refuse() {
        meta.refused = 1;
    }

    #include "../shared/fragments/decision.p4"

    apply {
        if (meta.above == 1 && !meta.corrupted && (meta.below == 0 || meta.astray != 0)) {
            refuse();  // not an answer, or not of the parent that this slot's sum goes to
        } else if (meta.below == 1) {
            decision_below.apply();
        } else {
            decision.apply();
        }
    }
}

control Counters(in metadata_t meta, in ingress_intrinsic_metadata_t standard) {
    #include "../shared/fragments/counters.p4"
}

#endif
