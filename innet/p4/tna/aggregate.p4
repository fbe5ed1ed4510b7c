// innet's data plane for Tofino: the program of ../v1model, for tna and t2na.
//
// Each control is v1model's of the same name; docs/tofino.md lists what differs and why.

#ifndef WORKERS
#define WORKERS 4096
#endif

#include "chip.p4"
#include "metadata.p4"
#include "parser.p4"
#include "forwarding.p4"
#include "aggregation.p4"

control IngressPipeline(inout ingress_headers_t hdr, inout ingress_metadata_t meta,
                        in ingress_intrinsic_metadata_t standard,
                        in ingress_intrinsic_metadata_from_parser_t parsed,
                        inout ingress_intrinsic_metadata_for_deparser_t deparser,
                        inout ingress_intrinsic_metadata_for_tm_t traffic) {
    ArpResponder() arp_responder;
    Admission() admission;
    Aggregation() aggregation;
    Bridge() bridge;

    // By ingress port: frames in the switch's name; innet packets whose IPv4 header is damaged.
    @name("spoofed")   Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS) spoofed;
    @name("corrupted") Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS) corrupted;

    action descend() {
        meta.above = 1;
        meta.worker = hdr.innet.workers;
    }

    // The links to parents: at which port, from whom, and under which address this switch is known there.
    @name("uplinks")
    table uplinks {
        key = {
            standard.ingress_port: exact @name("port");
            meta.sender: exact @name("parent");
            meta.target: exact @name("address");
        }
        actions = { descend; NoAction; }
        const default_action = NoAction;
        size = 16;
    }

    action serve(bit<48> mac) {
        meta.mine = 1;
        meta.my_mac = mac;
    }

    // The address under which workers reach this switch, one entry.
    @name("service")
    table service {
        key = { meta.target: exact @name("address"); }
        actions = { serve; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action expose() {
        spoofed.count(standard.ingress_port);
    }

    // The addresses of the table `service`, again: does somebody else send in the switch's name?
    @name("own_addresses")
    table own_addresses {
        key = { meta.sender: exact @name("address"); }
        actions = { expose; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action leave_bridged() {
        hdr.bridge.setValid();
        hdr.bridge.purpose = PURPOSE_FORWARD;
        hdr.bridge.padding = 0;
        hdr.bridge.port = standard.ingress_port;
        hdr.bridge.group = 0;
    }

    action to_controller() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard.ingress_port;
        hdr.packet_out.setInvalid();
        traffic.ucast_egress_port = CPU_PORT;
    }

    apply {
        if (meta.form != FORM_AGAIN) {
            leave_bridged();
        }
        if (hdr.packet_out.isValid()) {
            if (meta.form == FORM_CLEAR) {
                to_controller();
            } else {
                traffic.ucast_egress_port = hdr.packet_out.egress_port;
                hdr.packet_out.setInvalid();
            }
        } else if (meta.form != FORM_AGAIN) {
            // What is given no port is dropped. All switches of a tree have one address, so a parent's
            // answers are found before anybody is accused of sending in this switch's name.
            if (!uplinks.apply().hit) {
                if (!own_addresses.apply().hit) {
                    if (service.apply().hit) {
                        if (hdr.arp.isValid()) {
                            arp_responder.apply(hdr, meta, standard, traffic);
                        } else if (hdr.innet.isValid() && !meta.damaged) {
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
        if (hdr.innet.isValid() && meta.damaged && (meta.mine == 1 || meta.above == 1)) {
            corrupted.count(standard.ingress_port);
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
        if (hdr.bridge.purpose == PURPOSE_COPY) {
            readdress.apply(hdr, standard);
        }
        if (hdr.bridge.purpose != PURPOSE_AGAIN && hdr.bridge.purpose != PURPOSE_AGAIN_ALL) {
            hdr.bridge.setInvalid();
        }
    }
}

Pipeline(IngressParser(), IngressPipeline(), IngressDeparser(),
         EgressParser(), EgressPipeline(), EgressDeparser()) pipe;

Switch(pipe) main;
