// Checksums that are verified and updated, over fields alone and with the payload.

#include <core.p4>
#include <v1model.p4>

header odd_t {
    bit<3>  a;
    bit<13> b;
    bit<8>  c;
    bit<16> verified;
    bit<16> verified_with_payload;
    bit<8>  wrong;
}

header sums_t {
    bit<16> csum16;
    bit<16> crc16;
    bit<32> crc32;
    bit<16> xor16;
    bit<16> csum16_with_payload;
    bit<32> crc32_with_payload;
    bit<16> unchanged;
}

struct headers_t {
    odd_t odd;
    sums_t sums;
}

struct metadata_t { }

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start { packet.extract(hdr.odd); packet.extract(hdr.sums); transition accept; }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(true, { hdr.odd.a, hdr.odd.b, hdr.odd.c }, hdr.odd.verified,
                        HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.odd.a != 0, { hdr.odd.a, hdr.odd.b, hdr.odd.c },
                                     hdr.odd.verified_with_payload, HashAlgorithm.crc16);
    }
}

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        hdr.odd.wrong = (bit<8>)standard.checksum_error;
        hdr.odd.c = hdr.odd.c + 1;
        standard.egress_spec = standard.ingress_port;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control TestUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(true, { hdr.odd.a, hdr.odd.b, hdr.odd.c }, hdr.sums.csum16,
                        HashAlgorithm.csum16);
        update_checksum(true, { hdr.odd.a, hdr.odd.b, hdr.odd.c }, hdr.sums.crc16,
                        HashAlgorithm.crc16);
        update_checksum(true, { hdr.odd.a, hdr.odd.b, hdr.odd.c, 4w0xf }, hdr.sums.crc32,
                        HashAlgorithm.crc32);
        update_checksum(true, { hdr.odd.a, hdr.odd.b, hdr.odd.c }, hdr.sums.xor16,
                        HashAlgorithm.xor16);
        update_checksum_with_payload(true, { hdr.odd.b, hdr.odd.a }, hdr.sums.csum16_with_payload,
                                     HashAlgorithm.csum16);
        update_checksum_with_payload(true, { hdr.odd.a }, hdr.sums.crc32_with_payload,
                                     HashAlgorithm.crc32);
        update_checksum(hdr.odd.a == 7, { hdr.odd.a }, hdr.sums.unchanged, HashAlgorithm.csum16);
    }
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.odd);
        packet.emit(hdr.sums);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), NoEgress(), TestUpdate(), TestDeparser()) main;
