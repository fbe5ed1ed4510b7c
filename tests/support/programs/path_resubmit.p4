// Packets that go through the ingress several times.
//
// The bits of the command are what is asked for together with resubmission.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<3>  rounds;
    bit<5>  padding;
    bit<16> session;
    bit<8>  before;  // written by the ingress: instance_type
    bit<16> port;  // ingress_port
    bit<16> length;  // packet_length
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

parser PathResubmitParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathResubmitIngress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        hdr.probe.before = (bit<8>)standard.instance_type;
        hdr.probe.port = (bit<16>)standard.ingress_port;
        hdr.probe.length = (bit<16>)standard.packet_length;
        if (meta.kept < (bit<16>)hdr.probe.rounds) {
            meta.kept = meta.kept + 1;
            meta.lost = meta.lost + 1;
            // All that is changed but `kept` is as it was again.
            hdr.probe.padding = 31;
            resubmit_preserving_field_list(1);
        }
        if (hdr.probe.command[0:0] == 1) { mark_to_drop(standard); }
        if (hdr.probe.command[1:1] == 1) { standard.mcast_grp = hdr.probe.session; }
        if (hdr.probe.command[2:2] == 1) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.probe.session, 1);
        }
        if (hdr.probe.command[3:3] == 1) { exit; }
        meta.lost = meta.lost + 0x100;
    }
}

control PathResubmitEgress(inout headers_t hdr, inout metadata_t meta,
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

control PathResubmitDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathResubmitParser(), NoVerification(), PathResubmitIngress(), PathResubmitEgress(), NoUpdate(),
         PathResubmitDeparser()) main;
