// What goes back to the workers, or on to the parent.

#ifndef INNET_REPLY_P4
#define INNET_REPLY_P4

#include "metadata.p4"

control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action result_to_all() {
        SEND_COPIES(meta.group);
        meta.addressed = 1;
        meta.copied = 1;
    }

    action reply_to_one() {
        SEND(standard.ingress_port);
        meta.addressed = 1;
    }

    action result_to_one() {
        reply_to_one();
    }

    action sum_to_parent() {
        SEND(meta.uplink);
        meta.addressed = 1;
    }

    // The copies get other addresses. A hop on the way from the parent may have put a checksum over the
    // old ones in the place of none.
    action answer_to_all() {
        hdr.udp.checksum = 0;
        result_to_all();
    }

    #include "../shared/fragments/answers.p4"
    #include "../shared/fragments/lengths.p4"

    action pass_on() {
        rise();
        sum_to_parent();
    }

    apply {
        if (meta.outcome == OUTCOME_NONE || meta.outcome == OUTCOME_WAITING
            || meta.outcome == OUTCOME_IGNORED) {
            mark_to_drop(standard);
        } else if (meta.above == 1) {
            go_down();
        } else if (meta.outcome == OUTCOME_COMPLETED) {
            complete();
        } else if (meta.outcome == OUTCOME_ANSWERED) {
            answer();
        } else if (meta.outcome == OUTCOME_PENDING) {
            remind();
        } else if (meta.outcome == OUTCOME_STALE) {
            reject();
        } else if (meta.outcome == OUTCOME_ASKED) {
            pass_on();
        } else {
            go_up();
        }
        if (hdr.lanes.isValid()) {
            lengthen();
        } else {
            shorten();
        }
    }
}

// On every copy of a result: the address of the worker, or of the switch below, that it is for. Who does
// not want the lanes gets none.
control Readdress(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    #include "../shared/fragments/replicas.p4"
    #include "../shared/fragments/lengths.p4"

    action strip() {
        hdr.lanes.setInvalid();
        hdr.innet.check = meta.bare_check;
        shorten();
    }

    apply {
        replicas.apply();
        if (hdr.lanes.isValid() && meta.wanted == 0) {
            strip();
        }
    }
}

#endif
