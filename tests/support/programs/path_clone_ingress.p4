// Clones of packets as they came in, with and without metadata that is kept.
//
// The bits of the command are what is asked for.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> session;
    bit<16> mark;  // which a clone must have as it came
    bit<8>  kind;  // from here on written by the egress: instance_type
    bit<16> instance;  // egress_rid
    bit<16> size;  // packet_length
    bit<16> came;  // ingress_port
    bit<16> left;  // egress_port
    bit<16> kept;  // metadata that a field list has
    bit<16> lost;  // metadata that none has
}

struct headers_t {
    probe_t probe;
}

struct metadata_t {
    @field_list(1)
    bit<16> kept;
    bit<16> lost;
}

parser PathCloneIngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                              inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathCloneIngressIngress(inout headers_t hdr, inout metadata_t meta,
                                inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        meta.kept = hdr.probe.mark;
        meta.lost = hdr.probe.mark;
        hdr.probe.mark = 0xdead;
        if (hdr.probe.command[0:0] == 1) { clone(CloneType.I2E, (bit<32>)hdr.probe.session); }
        if (hdr.probe.command[1:1] == 1) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.probe.session, 1);
        }
        if (hdr.probe.command[2:2] == 1) { mark_to_drop(standard); }
        if (hdr.probe.command[3:3] == 1) { clone(CloneType.I2E, 1); }
        if (hdr.probe.command[4:4] == 1) { standard.mcast_grp = hdr.probe.session; }
        // A clone keeps what the field has in the end.
        if (hdr.probe.command[5:5] == 1) { meta.kept = 0xbeef; }
        if (hdr.probe.command[6:6] == 1) { exit; }
        standard.egress_rid = 7;
    }
}

control PathCloneIngressEgress(inout headers_t hdr, inout metadata_t meta,
                               inout standard_metadata_t standard) {
    apply {
        hdr.probe.kind = (bit<8>)standard.instance_type;
        hdr.probe.instance = standard.egress_rid;
        hdr.probe.size = (bit<16>)standard.packet_length;
        hdr.probe.came = (bit<16>)standard.ingress_port;
        hdr.probe.left = (bit<16>)standard.egress_port;
        hdr.probe.kept = meta.kept;
        hdr.probe.lost = meta.lost;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathCloneIngressDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathCloneIngressParser(), NoVerification(), PathCloneIngressIngress(), PathCloneIngressEgress(), NoUpdate(),
         PathCloneIngressDeparser()) main;
