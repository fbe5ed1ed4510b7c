// innet's data plane for Tofino: the program of ../v1model, for tna and t2na.
//
// Each control is v1model's of the same name, and what they have in common is in ../shared. docs/tofino.md
// lists what differs and why.

#include "parser.p4"
#include "forwarding.p4"
#include "aggregation.p4"
#include "marking.p4"

control IngressPipeline(inout headers_t hdr, inout metadata_t meta,
                        in ingress_intrinsic_metadata_t standard,
                        in ingress_intrinsic_metadata_from_parser_t parsed,
                        inout ingress_intrinsic_metadata_for_deparser_t deparser,
                        inout ingress_intrinsic_metadata_for_tm_t traffic) {
    ArpResponder() arp_responder;
    Admission() admission;
    Aggregation() aggregation;
    Bridge() bridge;

    #include "../shared/fragments/uplinks.p4"
    #include "../shared/fragments/service.p4"
    #include "../shared/fragments/own_addresses.p4"

    @name("corrupted")  // by ingress port: innet packets whose IPv4 header's checksum does not fit
    COUNTER(512, bit<9>, corrupted);

    action leave_bridged() {
        hdr.bridge.setValid();
        hdr.bridge.purpose = PURPOSE_FORWARD;
        hdr.bridge.padding = 0;
        hdr.bridge.port = standard.ingress_port;
        hdr.bridge.group = 0;
#if __TARGET_TOFINO__ == 2
        hdr.bridge.wanted = 0;
#endif
    }

    action to_controller() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard.ingress_port;
        hdr.packet_out.setInvalid();
        SEND(CPU_PORT);
    }

    apply {
        if (meta.form != FORM_AGAIN) {
            leave_bridged();
        }
        if (hdr.packet_out.isValid()) {
            if (meta.form == FORM_CLEAR) {
                to_controller();
            } else {
                SEND(hdr.packet_out.egress_port);
                hdr.packet_out.setInvalid();
            }
        } else if (meta.form != FORM_AGAIN) {
            // What is given no port is dropped.
            if (!uplinks.apply().hit) {
                if (!own_addresses.apply().hit) {
                    if (service.apply().hit) {
                        if (hdr.arp.isValid()) {
                            arp_responder.apply(hdr, meta, standard, traffic);
                        } else if (hdr.innet.isValid() && !meta.corrupted) {
                            if (meta.form == FORM_HELLO) {
                                to_controller();
                            } else {
                                admission.apply(hdr, meta, standard);
                            }
                        }
                    } else {
                        bridge.apply(hdr, traffic);
                    }
                }
            }
        }
        if (hdr.innet.isValid() && meta.corrupted && (meta.mine == 1 || meta.above == 1)) {
            COUNT(corrupted, standard.ingress_port);
        }
        meta.cell = hdr.innet.slot[14:0] ++ hdr.innet.sequence[0:0];
        aggregation.apply(hdr, meta, standard, deparser, traffic);
    }
}

control EgressPipeline(inout egress_headers_t hdr, inout egress_metadata_t meta,
                       in egress_intrinsic_metadata_t standard,
                       in egress_intrinsic_metadata_from_parser_t parsed,
                       inout egress_intrinsic_metadata_for_deparser_t deparser,
                       inout egress_intrinsic_metadata_for_output_port_t port) {
    Readdress() readdress;
    Marking() marking;

    action drop() {
        deparser.drop_ctl = 1;
    }

    // A flooded frame does not go back to where it came from.
    table returned {
        key = {
            hdr.bridge.purpose: exact;
            meta.turn: exact;
        }
        actions = { drop; NoAction; }
        const default_action = NoAction;
        const entries = { (PURPOSE_FLOOD, 0): drop(); }
        size = 1;
    }

    apply {
        meta.turn = hdr.bridge.port ^ standard.egress_port;
        returned.apply();
        if (hdr.bridge.purpose == PURPOSE_COPY || hdr.bridge.purpose == PURPOSE_BARE_COPY) {
            readdress.apply(hdr, meta, standard);
        }
        marking.apply(hdr, standard);
        if (hdr.bridge.purpose != PURPOSE_AGAIN && hdr.bridge.purpose != PURPOSE_AGAIN_ALL) {
            hdr.bridge.setInvalid();
        }
    }
}

Pipeline(IngressParser(), IngressPipeline(), IngressDeparser(),
         EgressParser(), EgressPipeline(), EgressDeparser()) pipe;

Switch(pipe) main;
