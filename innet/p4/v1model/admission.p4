// Who sent a packet for this switch's cells, and may it touch them?

#ifndef INNET_ADMISSION_P4
#define INNET_ADMISSION_P4

#include "metadata.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    #include "../shared/fragments/workers.p4"
    #include "../shared/fragments/trees.p4"

    apply {
        bool from_below = meta.form == FORM_CONTRIBUTION || meta.form == FORM_QUERY;
        if (from_below && meta.above == 0) {
            workers.apply();
        }
        if (meta.admitted == 1 || (meta.above == 1 && IS_ANSWER(meta.form))) {
            trees.apply();
        }
        if (meta.above == 1) {
            // An answer is heard from the very parent that this slot's sum goes to.
            if (meta.below == 1 && meta.astray == 0) {
                meta.admitted = 1;
            } else {
                refuse();
            }
        } else if (!from_below) {
            refuse();
        }
    }
}

#endif
