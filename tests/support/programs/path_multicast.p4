// Copies of a packet for a group, and what takes precedence over them.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> group;
    bit<16> unwanted;  // a port whose copy is dropped
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

parser PathMulticastParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathMulticastIngress(inout headers_t hdr, inout metadata_t meta,
                             inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 3;
        meta.kept = 0x1111;
        standard.egress_rid = 9;
        standard.mcast_grp = hdr.probe.group;
        if (hdr.probe.command[0:0] == 1) { mark_to_drop(standard); }
        if (hdr.probe.command[1:1] == 1) { standard.mcast_grp = hdr.probe.group; }
        if (hdr.probe.command[2:2] == 1) { standard.egress_spec = 511; }
    }
}

control PathMulticastEgress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard) {
    apply {
        if (hdr.probe.unwanted == (bit<16>)standard.egress_port) { mark_to_drop(standard); }

        hdr.probe.kind = (bit<8>)standard.instance_type;
        hdr.probe.instance = standard.egress_rid;
        hdr.probe.size = (bit<16>)standard.packet_length;
        hdr.probe.came = (bit<16>)standard.ingress_port;
        hdr.probe.left = (bit<16>)standard.egress_port;
        hdr.probe.kept = meta.kept;
        hdr.probe.lost = meta.lost;

        // Every copy has its own metadata.
        meta.lost = meta.lost + 1;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathMulticastDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathMulticastParser(), NoVerification(), PathMulticastIngress(), PathMulticastEgress(), NoUpdate(),
         PathMulticastDeparser()) main;
