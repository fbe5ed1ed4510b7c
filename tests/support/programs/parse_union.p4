// A header union: whichever member becomes valid, the others are not any more.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> kind;
    bit<8> code;
    bit<8> seen;
}

header short_t  { bit<8> value; }
header long_t   { bit<16> value; }

header_union either_t {
    short_t s;
    long_t  l;
}

struct headers_t {
    request_t request;
    either_t  first;
    either_t  second;
}

struct metadata_t { }

parser UnionParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.kind) {
            1: short_one;
            2: long_one;
            3: both;
            default: accept;
        }
    }

    state short_one {
        packet.extract(hdr.first.s);
        transition accept;
    }

    state long_one {
        packet.extract(hdr.first.l);
        transition accept;
    }

    state both {
        packet.extract(hdr.first.s);
        packet.extract(hdr.first.l);
        transition accept;
    }
}

control UnionIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (hdr.request.code == 1) {
            hdr.first.s.setValid();
            hdr.first.s.value = 0xaa;
        } else if (hdr.request.code == 2) {
            hdr.second = hdr.first;
        } else if (hdr.request.code == 3) {
            hdr.second.s.setValid();
            hdr.second.s.value = 1;
            hdr.second = hdr.first;
        } else if (hdr.request.code == 4) {
            hdr.first.l.setInvalid();
        } else if (hdr.request.code == 5) {
            hdr.second.l.setValid();
            hdr.second.l.value = 0xbbcc;
            hdr.second.s = hdr.first.s;
        }
        if (hdr.first.isValid()) { hdr.request.seen = hdr.request.seen | 1; }
        if (hdr.second.isValid()) { hdr.request.seen = hdr.request.seen | 2; }
        if (hdr.first == hdr.second) { hdr.request.seen = hdr.request.seen | 4; }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control UnionDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.first);
        packet.emit(hdr.second);
    }
}

V1Switch(UnionParser(), NoVerification(), UnionIngress(), NoEgress(), NoUpdate(),
         UnionDeparser()) main;
