// A wire: what comes in at port 1 goes out of port 2, and the other way.

#include <core.p4>
#include <v1model.p4>

struct headers_t { }
struct metadata_t { }

parser NoParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard) {
    state start { transition accept; }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }

control WireIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port ^ 3;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control NoDeparser(packet_out packet, in headers_t hdr) { apply { } }

V1Switch(NoParser(), NoChecksum(), WireIngress(), NoEgress(), NoChecksum(), NoDeparser()) main;
