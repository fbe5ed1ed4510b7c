// innet's data plane for v1model: a bridge that also sums vectors.
//
//              ┌─ from the controller ──────────────────────────▶ out of the port it names
//     frame ──▶┤                     ┌─ ARP ────────────────────▶ reply
//              ├─ for this switch ──▶┼─ hello ──────────────────▶ to the controller
//              │                     └─ contribution, clear ────▶ aggregation.p4
//              ├─ a parent's answer ────────────────────────────▶ aggregation.p4
//              ├─ in its name, or corrupted ────────────────────▶ dropped
//              └─ anything else ────────────────────────────────▶ bridge
//
// It keeps to what a Tofino can do: one access to a register per packet, two words in and one out
// of it, no loops, integers only, all state in the ingress. Only integrity.p4 multiplies. What it has in
// common with ../tna is in ../shared, as fragments that stand inside of the controls.

#include "parser.p4"
#include "forwarding.p4"
#include "integrity.p4"
#include "aggregation.p4"
#include "marking.p4"

control IngressPipeline(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    ArpResponder() arp_responder;
    CheckVerification() check_verification;
    CheckUpdate() check_update;
    Aggregation() aggregation;
    Bridge() bridge;

    #include "../shared/fragments/uplinks.p4"
    #include "../shared/fragments/service.p4"
    #include "../shared/fragments/own_addresses.p4"

    apply {
        bool in_our_name = false;
        if (standard.parser_error != error.NoError && !hdr.ipv4.isValid()) {
            mark_to_drop(standard);  // cut short
        } else if (hdr.packet_out.isValid() && meta.form != FORM_CLEAR) {
            SEND(hdr.packet_out.egress_port);
        } else {
            service.apply();
            if (!hdr.packet_out.isValid()) {
                if (hdr.innet.isValid()) {
                    uplinks.apply();
                }
                if (meta.above == 0) {
                    in_our_name = own_addresses.apply().hit;
                }
            }
            if (in_our_name) {
                mark_to_drop(standard);
            } else if (meta.mine == 0 && meta.above == 0) {
                // Also what only looks like innet's, and is too short for that.
                bridge.apply(hdr, meta, standard);
            } else if (hdr.arp.isValid()) {
                arp_responder.apply(hdr, meta, standard);
            } else if (hdr.innet.isValid()) {
                check_verification.apply(hdr, meta, standard);
                if (meta.corrupted) {
                    mark_to_drop(standard);
                } else if (meta.form == FORM_HELLO && meta.above == 0) {
                    SEND(CPU_PORT);
                } else {
                    aggregation.apply(hdr, meta, standard);
                    if (meta.addressed == 1) {
                        check_update.apply(hdr, meta);
                    }
                }
            } else {
                mark_to_drop(standard);
            }
        }
    }
}

control EgressPipeline(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Readdress() readdress;
    Marking() marking;

    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.padding = 0;
        } else if (meta.flooded == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        } else {
            if (meta.copied == 1) {
                readdress.apply(hdr, meta, standard);
            }
            marking.apply(hdr, standard);
        }
    }
}

V1Switch(IngressParser(), ChecksumVerification(), IngressPipeline(), EgressPipeline(),
         ChecksumUpdate(), EgressDeparser()) main;
