// An action outside of all controls, which p4c gives a copy of standard metadata to mark.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> kind;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

action drop(inout standard_metadata_t standard) {
    mark_to_drop(standard);
}

parser PathDropCopyParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathDropCopyIngress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    table filter {
        key = { hdr.probe.kind: exact; }
        actions = { forward; drop(standard); }
        const entries = {
            1: forward(2);
            2: drop(standard);
        }
        const default_action = forward(3);
    }

    apply {
        standard.mcast_grp = 1;
        filter.apply();
        if (hdr.probe.kind == 3) { drop(standard); standard.egress_spec = 4; }
    }
}

control PathDropCopyEgress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    apply {
        if (hdr.probe.kind == 4) { drop(standard); }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathDropCopyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathDropCopyParser(), NoVerification(), PathDropCopyIngress(), PathDropCopyEgress(),
         NoUpdate(), PathDropCopyDeparser()) main;
