// Many effects at once: every bit of the command is one. Their order is the switch's.
//   0: clone at ingress
//   1: the same, keeping metadata
//   2: resubmit, once
//   3: truncate in the ingress
//   4: truncate to less in the ingress
//   5: multicast
//   6: mark_to_drop in the ingress
//   7: exit in the ingress
//   8: clone at egress, once
//   9: the same, keeping metadata
//  10: recirculate, once
//  11: truncate in the egress
//  12: mark_to_drop in the egress
//  13: exit in the egress
//  14: digest
//  15: another port

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<16> command;
    bit<16> session;
    bit<8>  passes;
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

struct note_t {
    bit<16> session;
    bit<16> kept;
}

parser PathEffectsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathEffectsIngress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        hdr.probe.passes = hdr.probe.passes + 1;
        meta.kept = meta.kept + 1;
        meta.lost = meta.lost + 1;
        standard.egress_spec = 2;
        if (hdr.probe.command[0:0] == 1) { clone(CloneType.I2E, (bit<32>)hdr.probe.session); }
        if (hdr.probe.command[1:1] == 1) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.probe.session, 1);
        }
        if (hdr.probe.command[2:2] == 1 && standard.instance_type == 0) {
            resubmit_preserving_field_list(1);
        }
        if (hdr.probe.command[3:3] == 1) { truncate(20); }
        if (hdr.probe.command[4:4] == 1) { truncate(12); }
        if (hdr.probe.command[5:5] == 1) { standard.mcast_grp = hdr.probe.session; }
        if (hdr.probe.command[14:14] == 1) { digest<note_t>(1, { hdr.probe.session, meta.kept }); }
        if (hdr.probe.command[6:6] == 1) { mark_to_drop(standard); }
        if (hdr.probe.command[7:7] == 1) { exit; }
        if (hdr.probe.command[15:15] == 1) { standard.egress_spec = 3; }
    }
}

control PathEffectsEgress(inout headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    apply {
        hdr.probe.kind = (bit<8>)standard.instance_type;
        hdr.probe.instance = standard.egress_rid;
        hdr.probe.size = (bit<16>)standard.packet_length;
        hdr.probe.came = (bit<16>)standard.ingress_port;
        hdr.probe.left = (bit<16>)standard.egress_port;
        hdr.probe.kept = meta.kept;
        hdr.probe.lost = meta.lost;

        hdr.probe.passes = hdr.probe.passes + 0x10;
        if (hdr.probe.command[8:8] == 1 && standard.instance_type != 2) {
            clone(CloneType.E2E, (bit<32>)hdr.probe.session);
        }
        if (hdr.probe.command[9:9] == 1 && standard.instance_type != 2) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.probe.session, 1);
        }
        if (hdr.probe.command[10:10] == 1 && hdr.probe.passes < 0x20) {
            recirculate_preserving_field_list(1);
        }
        if (hdr.probe.command[11:11] == 1) { truncate(16); }
        if (hdr.probe.command[12:12] == 1) { mark_to_drop(standard); }
        if (hdr.probe.command[13:13] == 1) { exit; }
        meta.kept = meta.kept + 0x100;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathEffectsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathEffectsParser(), NoVerification(), PathEffectsIngress(), PathEffectsEgress(), NoUpdate(),
         PathEffectsDeparser()) main;
