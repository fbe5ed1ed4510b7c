// Who sent a packet for this switch's cells, and may it touch them?

#ifndef INNET_ADMISSION_P4
#define INNET_ADMISSION_P4

#include "metadata.p4"

control Admission(inout headers_t hdr, inout metadata_t meta,
                  in ingress_intrinsic_metadata_t standard) {
    #include "../shared/fragments/workers.p4"

    apply {
        if (meta.form == FORM_CONTRIBUTION || meta.form == FORM_QUERY) {
            workers.apply();
        } else {
            refuse();
        }
    }
}

// Of jobs that several switches sum.
control Tree(in headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t standard) {
    #include "../shared/fragments/trees.p4"

    apply {
        if (meta.admitted == 1 || (meta.above == 1 && !meta.corrupted && IS_ANSWER(meta.form))) {
            trees.apply();
        }
#if __TARGET_TOFINO__ == 2
        if (meta.above == 1 && meta.below == 1 && meta.astray == 0) {
            meta.admitted = 1;
        }
#endif
    }
}

#endif
