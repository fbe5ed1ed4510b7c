// What packets tell the controller: a structure, or values without one.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<48> address;
    bit<16> mark;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

struct station_t {
    bit<48> address;
    bit<9>  port;
    bit<16> mark;
}

parser PathDigestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathDigestIngress(inout headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        if (hdr.probe.command[0:0] == 1) {
            digest<station_t>(1, { hdr.probe.address, standard.ingress_port, hdr.probe.mark });
        }
        // The last one counts.
        if (hdr.probe.command[1:1] == 1) { digest(1, { hdr.probe.mark }); }
        hdr.probe.mark = 0;
        if (hdr.probe.command[2:2] == 1) { mark_to_drop(standard); }
    }
}

control PathDigestEgress(inout headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard) {
    apply {
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathDigestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathDigestParser(), NoVerification(), PathDigestIngress(), PathDigestEgress(), NoUpdate(),
         PathDigestDeparser()) main;
