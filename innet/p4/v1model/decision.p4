// What becomes of a contribution, or of a parent's answer, and how often that was.

#ifndef INNET_DECISION_P4
#define INNET_DECISION_P4

#include "metadata.p4"

control Decision(inout headers_t hdr, inout metadata_t meta) {
    #include "fragments/decision.p4"

    apply {
        if (meta.below == 1) {
            decision_below.apply();
        } else {
            decision.apply();
        }
    }
}

control Counters(in metadata_t meta, in standard_metadata_t standard) {
    #include "fragments/counters.p4"
}

#endif
