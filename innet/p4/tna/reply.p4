// What goes back to the workers, or on to the parent.

#ifndef INNET_REPLY_P4
#define INNET_REPLY_P4

#include "metadata.p4"

control Reply(inout headers_t hdr, in metadata_t meta,
              in ingress_intrinsic_metadata_t standard,
              inout ingress_intrinsic_metadata_for_deparser_t deparser,
              inout ingress_intrinsic_metadata_for_tm_t traffic) {
    #include "../shared/fragments/lengths.p4"

    action result_to_all() {
        lengthen();
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN_ALL;
        hdr.bridge.group = meta.group;
#else
        hdr.bridge.purpose = PURPOSE_COPY;
        SEND_COPIES(meta.group);
#endif
    }

    // Without lanes one pass is enough.
    action reply_to_one() {
        shorten();
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(standard.ingress_port);
    }

    action result_to_one() {
        lengthen();
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN;
#else
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(standard.ingress_port);
#endif
    }

    action sum_to_parent() {
        lengthen();
#if __TARGET_TOFINO__ == 1
        hdr.bridge.purpose = PURPOSE_AGAIN;
        hdr.bridge.port = meta.uplink;
#else
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(meta.uplink);
#endif
    }

    action answer_to_all() {
        hdr.bridge.purpose = PURPOSE_COPY;
        SEND_COPIES(meta.group);
    }

    #include "../shared/fragments/answers.p4"

    action bare_to_all() {
        shorten();
        hdr.bridge.purpose = PURPOSE_BARE_COPY;
        SEND_COPIES(meta.group);
    }

    action complete_bare() {
        say_result();
        bare_to_all();
    }

    action answer_bare() {
        say_result_again();
        reply_to_one();
    }

    action go_up_bare() {
        say_sum();
        shorten();
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(meta.uplink);
    }

    action go_down_bare() {
        say_what_the_parent_says();
        bare_to_all();
    }

    action pass_on() {
        rise();
        shorten();
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(meta.uplink);
    }

    action drop() {
        deparser.drop_ctl = 1;
    }

    // The second pass: the result, or the sum, goes where the first one meant it to.
    action deliver_to_one() {
        hdr.bridge.purpose = PURPOSE_REPLY;
        SEND(hdr.bridge.port);
    }

    action deliver_to_all() {
        hdr.bridge.purpose = PURPOSE_COPY;
        SEND_COPIES(hdr.bridge.group);
    }

    table replies {
        key = {
            meta.outcome: ternary;
            meta.above: ternary;
            hdr.bridge.purpose: ternary;
            hdr.lanes.isValid(): ternary @name("lanes");
        }
        actions = {
            complete; complete_bare; answer; answer_bare; remind; reject; go_up; go_up_bare; go_down;
            go_down_bare; pass_on; drop; deliver_to_one; deliver_to_all; NoAction;
        }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_WAITING,   0, PURPOSE_FORWARD,   _):    drop();
            (OUTCOME_COMPLETED, 0, PURPOSE_FORWARD,   true): complete();
            (OUTCOME_COMPLETED, 0, PURPOSE_FORWARD,   _):    complete_bare();
            (OUTCOME_ANSWERED,  0, PURPOSE_FORWARD,   true): answer();
            (OUTCOME_ANSWERED,  0, PURPOSE_FORWARD,   _):    answer_bare();
            (OUTCOME_PENDING,   0, PURPOSE_FORWARD,   _):    remind();
            (OUTCOME_STALE,     0, PURPOSE_FORWARD,   _):    reject();
            (OUTCOME_RAISED,    0, PURPOSE_FORWARD,   true): go_up();
            (OUTCOME_RAISED,    0, PURPOSE_FORWARD,   _):    go_up_bare();
            (OUTCOME_COMPLETED, 1, PURPOSE_FORWARD,   true): go_down();
            (OUTCOME_COMPLETED, 1, PURPOSE_FORWARD,   _):    go_down_bare();
            (OUTCOME_PENDING,   1, PURPOSE_FORWARD,   _):    go_down_bare();
            (OUTCOME_STALE,     1, PURPOSE_FORWARD,   _):    go_down_bare();
            (OUTCOME_ASKED,     0, PURPOSE_FORWARD,   _):    pass_on();
            (OUTCOME_IGNORED,   _, PURPOSE_FORWARD,   _):    drop();
            (OUTCOME_DELIVERED, 0, PURPOSE_AGAIN,     _):    deliver_to_one();
            (OUTCOME_DELIVERED, 0, PURPOSE_AGAIN_ALL, _):    deliver_to_all();
            (OUTCOME_OVERTAKEN, 0, PURPOSE_AGAIN,     _):    drop();
            (OUTCOME_OVERTAKEN, 0, PURPOSE_AGAIN_ALL, _):    drop();
        }
        size = 32;
    }

#if __TARGET_TOFINO__ == 1
    action again(bit<9> port) {
        SEND(port);
    }

    // What goes out with the cell's lanes passes the ingress twice, in the pipe that has the cell. What a
    // parent sends has all lanes.
    table recirculation {
        key = {
            meta.outcome: ternary;
            meta.above: ternary;
            standard.ingress_port: ternary;
            hdr.lanes.isValid(): ternary @name("lanes");
        }
        actions = { again; NoAction; }
        const default_action = NoAction;
        const entries = {
            (OUTCOME_COMPLETED, 0, PIPE(0), true): again(RECIRCULATION_PORT(0));
            (OUTCOME_COMPLETED, 0, PIPE(1), true): again(RECIRCULATION_PORT(1));
            (OUTCOME_COMPLETED, 0, PIPE(2), true): again(RECIRCULATION_PORT(2));
            (OUTCOME_COMPLETED, 0, PIPE(3), true): again(RECIRCULATION_PORT(3));
            (OUTCOME_ANSWERED,  _, PIPE(0), true): again(RECIRCULATION_PORT(0));
            (OUTCOME_ANSWERED,  _, PIPE(1), true): again(RECIRCULATION_PORT(1));
            (OUTCOME_ANSWERED,  _, PIPE(2), true): again(RECIRCULATION_PORT(2));
            (OUTCOME_ANSWERED,  _, PIPE(3), true): again(RECIRCULATION_PORT(3));
            (OUTCOME_RAISED,    _, PIPE(0), true): again(RECIRCULATION_PORT(0));
            (OUTCOME_RAISED,    _, PIPE(1), true): again(RECIRCULATION_PORT(1));
            (OUTCOME_RAISED,    _, PIPE(2), true): again(RECIRCULATION_PORT(2));
            (OUTCOME_RAISED,    _, PIPE(3), true): again(RECIRCULATION_PORT(3));
        }
        size = 16;
    }
#endif

    apply {
        replies.apply();
#if __TARGET_TOFINO__ == 1
        recirculation.apply();
#endif
    }
}

// On every copy of a result: the address of the worker, or of the switch below, that it is for.
control Readdress(inout egress_headers_t hdr, in egress_metadata_t meta,
                  in egress_intrinsic_metadata_t standard) {
    #include "../shared/fragments/replicas.p4"

    #include "../shared/fragments/lengths.p4"

    apply {
        replicas.apply();
#if __TARGET_TOFINO__ == 2
        if (meta.stripped == 1) {
            shorten();
        }
#endif
    }
}

#endif
