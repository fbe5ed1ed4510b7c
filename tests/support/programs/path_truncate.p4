// Packets that are cut, in the ingress, in the egress, and in both.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> before;
    bit<16> behind;
    bit<16> session;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser PathTruncateParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathTruncateIngress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        if (hdr.probe.command[0:0] == 1) { truncate((bit<32>)hdr.probe.before); }
        if (hdr.probe.command[1:1] == 1) { standard.mcast_grp = hdr.probe.session; }
        if (hdr.probe.command[2:2] == 1) { clone(CloneType.I2E, (bit<32>)hdr.probe.session); }
    }
}

control PathTruncateEgress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    apply {
        if (hdr.probe.command[3:3] == 1) { truncate((bit<32>)hdr.probe.behind); }
        if (hdr.probe.command[4:4] == 1 && standard.instance_type != 2) {
            clone(CloneType.E2E, (bit<32>)hdr.probe.session);
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathTruncateDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathTruncateParser(), NoVerification(), PathTruncateIngress(), PathTruncateEgress(), NoUpdate(),
         PathTruncateDeparser()) main;
