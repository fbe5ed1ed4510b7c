// The hash that is no hash: a random number, in a range.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<32> base;
    bit<32> size;
    bit<32> result;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start { packet.extract(hdr.probe); transition accept; }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        hash(hdr.probe.result, HashAlgorithm.random, hdr.probe.base, { hdr.probe.base },
             hdr.probe.size);
        standard.egress_spec = standard.ingress_port;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control TestUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), NoEgress(), TestUpdate(), TestDeparser()) main;
