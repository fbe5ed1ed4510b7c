// A hash over fields that do not fill bytes, and over a header that may not be there.

#include <core.p4>
#include <v1model.p4>

header odd_t {
    bit<1>  more;
    bit<3>  a;
    bit<13> b;
    bit<7>  c;
    bit<32> fields;
    bit<32> with_header;
}

header more_t {
    bit<4>  d;
    bit<20> e;
}

struct headers_t {
    odd_t odd;
    more_t more;
}

struct metadata_t { }

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.odd);
        transition select(hdr.odd.more) {
            1: parse_more;
            default: accept;
        }
    }

    state parse_more {
        packet.extract(hdr.more);
        transition accept;
    }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        hash(hdr.odd.fields, HashAlgorithm.crc32, 32w0, { hdr.odd.a, hdr.odd.b, 5w9, hdr.odd.c },
             64w0x100000000);
        standard.egress_spec = standard.ingress_port;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control TestUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(true, { hdr.odd.a, hdr.more.e, hdr.odd.b }, hdr.odd.with_header,
                        HashAlgorithm.crc32);
    }
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.odd);
        packet.emit(hdr.more);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), NoEgress(), TestUpdate(), TestDeparser()) main;
