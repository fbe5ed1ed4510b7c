// Whole headers: assigned, compared, exchanged, made valid and invalid, sent in another order.

#include <core.p4>
#include <v1model.p4>

header given_t { bit<8> operation; bit<8> present; }
header part_t { bit<16> a; bit<8> b; int<8> c; }
struct headers_t { given_t given; part_t first; part_t second; part_t third; }
struct pair_t { bit<16> a; bit<8> b; }
struct metadata_t { pair_t one; pair_t other; part_t spare; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        meta.one = { 1, 2 };
        transition select(hdr.given.present[0:0], hdr.given.present[1:1]) {
            (1, _): parse_first;
            (0, 1): parse_second;
            default: accept;
        }
    }
    state parse_first {
        packet.extract(hdr.first);
        transition select(hdr.given.present) {
            3: parse_second;
            4 &&& 4: parse_second;
            default: accept;
        }
    }
    state parse_second {
        packet.extract(hdr.second);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action exchange() {
        meta.spare = hdr.first;
        hdr.first = hdr.second;
        hdr.second = meta.spare;
    }
    action duplicate() { hdr.third = hdr.first; }
    action fill(bit<16> a, bit<8> b) {
        hdr.second.setValid();
        hdr.second = { a, b, -1 };
    }
    action forget() {
        hdr.first.setInvalid();
        hdr.second.setInvalid();
    }
    action again() {
        hdr.first.setValid();
        hdr.first.a = 7;
        hdr.first.b = 8;
        hdr.first.c = -9;
        hdr.third.setInvalid();
    }
    @name("operations")
    table operations {
        key = {
            hdr.given.operation: ternary;
            hdr.first.isValid(): exact;
            hdr.second.isValid(): ternary;
        }
        actions = { exchange; duplicate; fill; forget; again; }
        default_action = exchange();
        size = 16;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        if (hdr.first == hdr.second) {
            hdr.given.operation = 0xee;
        }
        if (hdr.third.isValid() && hdr.third != hdr.second) {
            meta.other = { hdr.third.a, hdr.third.b };
            meta.one = meta.other;
        }
        if (meta.one == meta.other) {
            hdr.given.present = 0xdd;
        }
        standard.egress_spec = 1;
    }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.second);
        packet.emit(hdr.given);
        packet.emit(hdr.third);
        packet.emit(hdr.first);
    }
}

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
