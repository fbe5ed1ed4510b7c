// The slot protocol: which packets count, what they do to a cell, and what goes back.
//
// A contribution passes these controls in this order; each touches its register once:
//
//     Admission    who is this, and may it contribute?      table `workers`
//                  does its sum go up to a parent?          table `trees`
//     Sequence     stale, current or newer than the cell?   register `sequence`
//     Arrivals     who has contributed; was it in already?  register `arrived`
//     Wants        who wants the result's lanes?            register `wanted`
//     Countdown    how many contributions were missing?     register `missing`
//     Carriage     has the cell lanes?                      register `carried`
//     Counts       how many workers are in the sum?         register `counts`
//     Decision     the truth table                          tables `decision*`, constant
//     Members      who is in a finished sum                 register `members`
//     Lanes        start, combine or read                   registers `cell_*`
//     Flags        what any contribution says of itself     register `flags`
//     Reply        result to all, or an answer to one       multicast group of the job
//     Counters     which of these it was
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
                    inout standard_metadata_t standard) {
    Admission() admission;
    Sequence() sequence;
    Arrivals() arrivals;
    Wants() wants;
    Countdown() countdown;
    Carriage() carriage;
    Counts() counts;
    Decision() decision;
    Members() members;
    Lanes() lanes;
    Flags() flags;
    Reply() reply;
    Counters() counters;

    apply {
        meta.cell = (bit<32>) (hdr.innet.slot ++ hdr.innet.sequence[0:0]);
        if (hdr.packet_out.isValid()) {
            sequence.apply(hdr, meta);
            SEND(standard.ingress_port);
        } else {
            admission.apply(hdr, meta, standard);
            if (meta.admitted == 1) {
                if (hdr.ipv4.ecn == ECN_CONGESTED) {
                    hdr.innet.flags = hdr.innet.flags | FLAG_MARKED;
                }
                sequence.apply(hdr, meta);
                if (meta.age != AGE_STALE) {
                    arrivals.apply(meta);
                    wants.apply(hdr, meta);
                    countdown.apply(meta);
                    carriage.apply(hdr, meta);
                    counts.apply(hdr, meta);
                }
                decision.apply(hdr, meta);
                members.apply(meta);
                lanes.apply(hdr, meta);
                flags.apply(hdr, meta);
            }
            reply.apply(hdr, meta, standard);
            counters.apply(meta, standard);
        }
    }
}

#endif
