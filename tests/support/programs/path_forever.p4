// Packets that never leave: resubmitted, recirculated or cloned without end.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
}

parser PathForeverParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathForeverIngress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        if (hdr.probe.command == 1) { resubmit_preserving_field_list(1); }
    }
}

control PathForeverEgress(inout headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    apply {
        if (hdr.probe.command == 2) { recirculate_preserving_field_list(1); }
        if (hdr.probe.command == 3) { clone(CloneType.E2E, 1); }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathForeverDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathForeverParser(), NoVerification(), PathForeverIngress(), PathForeverEgress(), NoUpdate(),
         PathForeverDeparser()) main;
