// What is sent, where, and what is dropped: the meaning of egress_spec and egress_port.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  ingress;
    bit<8>  egress;
    bit<16> spec;  // written by the egress: egress_spec as it began
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser PathDropParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathDropIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        if (hdr.probe.ingress == 1) { mark_to_drop(standard); }
        if (hdr.probe.ingress == 2) { mark_to_drop(standard); standard.egress_spec = 3; }
        if (hdr.probe.ingress == 3) { standard.egress_spec = 511; }
        if (hdr.probe.ingress == 4) { standard.egress_spec = 500; }
        if (hdr.probe.ingress == 5) { standard.egress_port = 3; }
        if (hdr.probe.ingress == 6) { standard.egress_spec = 0; }
        if (hdr.probe.ingress == 7) { standard.mcast_grp = 1; mark_to_drop(standard); standard.egress_spec = 4; }
    }
}

control PathDropEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    apply {
        hdr.probe.spec = (bit<16>)standard.egress_spec;
        if (hdr.probe.egress == 1) { mark_to_drop(standard); }
        if (hdr.probe.egress == 2) { mark_to_drop(standard); standard.egress_spec = 3; }
        if (hdr.probe.egress == 3) { standard.egress_spec = 511; }
        if (hdr.probe.egress == 4) { standard.egress_spec = 3; }
        if (hdr.probe.egress == 5) { standard.egress_port = 3; }
        if (hdr.probe.egress == 6) { standard.mcast_grp = 1; }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathDropDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathDropParser(), NoVerification(), PathDropIngress(), PathDropEgress(), NoUpdate(),
         PathDropDeparser()) main;
