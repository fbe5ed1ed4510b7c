// Clones of packets as they go out, and clones of clones.
//
// The bits of the command are what is asked for.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> session;
    bit<2>  rounds;  // of clones of clones
    bit<6>  passed;
    bit<8>  kind;  // from here on written by the egress: instance_type
    bit<16> instance;  // egress_rid
    bit<16> size;  // packet_length
    bit<16> came;  // ingress_port
    bit<16> left;  // egress_port
    bit<16> kept;  // metadata that a field list has
    bit<16> lost;  // metadata that none has
}

header tag_t {
    bit<16> value;
}

struct headers_t {
    probe_t probe;
    tag_t   tag;
}

struct metadata_t {
    @field_list(1)
    bit<16> kept;
    bit<16> lost;
}

parser PathCloneEgressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                             inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathCloneEgressIngress(inout headers_t hdr, inout metadata_t meta,
                               inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        meta.kept = 0x1111;
        meta.lost = 0x2222;
        if (hdr.probe.command[0:0] == 1) { standard.mcast_grp = hdr.probe.session; }
    }
}

control PathCloneEgressEgress(inout headers_t hdr, inout metadata_t meta,
                              inout standard_metadata_t standard) {
    apply {
        hdr.probe.kind = (bit<8>)standard.instance_type;
        hdr.probe.instance = standard.egress_rid;
        hdr.probe.size = (bit<16>)standard.packet_length;
        hdr.probe.came = (bit<16>)standard.ingress_port;
        hdr.probe.left = (bit<16>)standard.egress_port;
        hdr.probe.kept = meta.kept;
        hdr.probe.lost = meta.lost;

        hdr.probe.passed = hdr.probe.passed + 1;
        if (hdr.probe.rounds != 0) {
            hdr.probe.rounds = hdr.probe.rounds - 1;
            if (hdr.probe.command[1:1] == 1) {
                clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.probe.session, 1);
            } else {
                clone(CloneType.E2E, (bit<32>)hdr.probe.session);
            }
            if (hdr.probe.command[2:2] == 1) {
                hdr.tag.setValid();
                hdr.tag.value = 0x7461;
            }
            if (hdr.probe.command[3:3] == 1) { mark_to_drop(standard); }
            if (hdr.probe.command[4:4] == 1) { exit; }
        }
        hdr.probe.lost = hdr.probe.lost + 1;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathCloneEgressDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
        packet.emit(hdr.tag);
    }
}

V1Switch(PathCloneEgressParser(), NoVerification(), PathCloneEgressIngress(), PathCloneEgressEgress(), NoUpdate(),
         PathCloneEgressDeparser()) main;
