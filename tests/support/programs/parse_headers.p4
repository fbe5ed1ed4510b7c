// Whole headers: made valid and invalid, assigned, compared; read while they are not valid.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> code;
    bit<8> seen;
}

header pair_t {
    bit<4>  first;
    bit<12> second;
}

struct headers_t {
    request_t request;
    pair_t    one;
    pair_t    two;
}

struct metadata_t { }

parser HeaderParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.code) {
            0: accept;
            9: reversed;
            default: both;
        }
    }

    state both {
        packet.extract(hdr.one);
        packet.extract(hdr.two);
        transition accept;
    }

    state reversed {
        packet.extract(hdr.two);
        packet.extract(hdr.one);
        hdr.request.setInvalid();
        transition accept;
    }
}

control HeaderIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (hdr.request.code == 1) {
            hdr.one = hdr.two;
        } else if (hdr.request.code == 2) {
            hdr.two.setInvalid();
            hdr.one = hdr.two;
        } else if (hdr.request.code == 3) {
            hdr.one.setInvalid();
            hdr.one.setValid();
        } else if (hdr.request.code == 4) {
            hdr.one.setValid();
        } else if (hdr.request.code == 5) {
            hdr.one = { 5, 6 };
        } else if (hdr.request.code == 6) {
            hdr.one.setInvalid();
            hdr.one.second = 1;
        } else if (hdr.request.code == 7) {
            pair_t kept = hdr.one;
            hdr.one = hdr.two;
            hdr.two = kept;
        }
        if (hdr.request.isValid()) {
            if (hdr.one == hdr.two) { hdr.request.seen = hdr.request.seen | 1; }
            if (hdr.one != hdr.two) { hdr.request.seen = hdr.request.seen | 2; }
            if (hdr.one.isValid()) { hdr.request.seen = hdr.request.seen | 4; }
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control HeaderDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.one);
        packet.emit(hdr.two);
    }
}

V1Switch(HeaderParser(), NoVerification(), HeaderIngress(), NoEgress(), NoUpdate(),
         HeaderDeparser()) main;
