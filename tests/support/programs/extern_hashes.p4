// The hashes of v1model over nine bytes, with a base and a size that come with the packet.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<72> data;
    bit<64> base;
    bit<64> size;
    bit<64> crc32;
    bit<64> crc32_custom;
    bit<64> crc16;
    bit<64> crc16_custom;
    bit<64> identity;
    bit<64> csum16;
    bit<64> xor16;
    bit<8>  narrow;
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
        hash(hdr.probe.crc32, HashAlgorithm.crc32, hdr.probe.base, { hdr.probe.data }, hdr.probe.size);
        hash(hdr.probe.crc32_custom, HashAlgorithm.crc32_custom, hdr.probe.base, { hdr.probe.data },
             hdr.probe.size);
        hash(hdr.probe.crc16, HashAlgorithm.crc16, hdr.probe.base, { hdr.probe.data }, hdr.probe.size);
        hash(hdr.probe.crc16_custom, HashAlgorithm.crc16_custom, hdr.probe.base, { hdr.probe.data },
             hdr.probe.size);
        hash(hdr.probe.identity, HashAlgorithm.identity, hdr.probe.base, { hdr.probe.data },
             hdr.probe.size);
        hash(hdr.probe.csum16, HashAlgorithm.csum16, hdr.probe.base, { hdr.probe.data },
             hdr.probe.size);
        hash(hdr.probe.xor16, HashAlgorithm.xor16, hdr.probe.base, { hdr.probe.data }, hdr.probe.size);
        hash(hdr.probe.narrow, HashAlgorithm.crc32, (bit<8>)hdr.probe.base, { hdr.probe.data },
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
