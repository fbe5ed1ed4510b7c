// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// The same as v1model's, in as few stages as the chip has. What a stage has to wait for is on its left:
//
//     Admission    who is this, and may it contribute?              table `workers`
//      └▶ Tree        does its sum go up to a parent?               table `trees`
//         Sequence    stale, current or newer than the cell?        registers `sequence`
//         Arrivals    who had contributed before?                   register `arrived`
//          └▶ Countdown    how many contributions were missing?     register `missing`
//             Wants        who wants the result's lanes?            register `wanted`
//             Members      who was in the sum?                      register `members`
//             Counts       how many workers are in the sum?       register `counts`
//             Flags        what did they say of themselves?         register `flags`
//              └▶ Decision    the truth table                       tables `decision*`, constant
//                  └▶ Lanes      start, combine or read             registers `cell_*`
//                     Reply      result to all; an answer to one; the sum to the parent
//                     Counters   which of these it was
//
// A switch that has a parent for a slot waits for one contribution more than there are contributors
// below it: the parent's answer, which takes the same way.

#ifndef INNET_AGGREGATION_P4
#define INNET_AGGREGATION_P4

#include "admission.p4"
#include "cells.p4"
#include "decision.p4"
#include "lanes.p4"
#include "reply.p4"

control Aggregation(inout headers_t hdr, inout metadata_t meta,
                    in ingress_intrinsic_metadata_t standard,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser,
                    inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Tree() tree;
    Sequence() sequence;
    Arrivals() arrivals;
    Countdown() countdown;
#if __TARGET_TOFINO__ == 2
    Wants() wants;
#endif
    Members() members;
    Counts() counts;
    Flags() flags;
    Decision() decision;
    Counters() counters;
    Lanes() lanes;
    Reply() reply;

    apply {
        tree.apply(hdr, meta, standard);
        if (hdr.ipv4.ecn == ECN_CONGESTED && (meta.admitted == 1 || meta.above == 1)) {
            hdr.innet.flags = hdr.innet.flags | FLAG_MARKED;
        }
        sequence.apply(hdr, meta);
        arrivals.apply(hdr, meta);
        countdown.apply(meta);
#if __TARGET_TOFINO__ == 2
        wants.apply(hdr, meta);
#endif
        members.apply(meta);
        counts.apply(hdr, meta);
        flags.apply(hdr, meta);
        decision.apply(hdr, meta);
        lanes.apply(hdr, meta);
        reply.apply(hdr, meta, standard, deparser, traffic);
        counters.apply(meta, standard);
    }
}

#endif
