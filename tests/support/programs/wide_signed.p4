// Arithmetic on numbers with a sign that are wider than any register of a processor.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8> operation; bit<8> by; int<200> a; int<200> b; int<8> c; int<128> d; int<128> e;
    bit<256> f; bit<16> seen;
}
struct headers_t { given_t given; }
struct metadata_t { int<264> sum; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action add() {
        hdr.given.a = hdr.given.a + hdr.given.b;
        hdr.given.d = hdr.given.d + 1;
    }
    action subtract() {
        hdr.given.a = hdr.given.a - hdr.given.b;
        hdr.given.d = hdr.given.d - hdr.given.e;
    }
    action multiply() {
        hdr.given.a = hdr.given.a * hdr.given.b;
        hdr.given.d = hdr.given.d * hdr.given.e;
    }
    action negate() {
        hdr.given.a = -hdr.given.a;
        hdr.given.b = ~hdr.given.b;
        hdr.given.d = -hdr.given.d;
    }
    action add_saturating() {
        hdr.given.a = hdr.given.a |+| hdr.given.b;
        hdr.given.d = hdr.given.d |+| hdr.given.e;
    }
    action subtract_saturating() {
        hdr.given.a = hdr.given.a |-| hdr.given.b;
        hdr.given.d = hdr.given.d |-| hdr.given.e;
    }
    action bits() {
        hdr.given.a = (hdr.given.a & hdr.given.b) | (hdr.given.a ^ 200s0x55);
    }
    action shift() {
        hdr.given.a = hdr.given.a << hdr.given.by;
        hdr.given.b = hdr.given.b >> hdr.given.by;
        hdr.given.d = hdr.given.d >> 5;
    }
    action widen() {
        hdr.given.a = (int<200>) hdr.given.c;
        hdr.given.b = (int<200>) hdr.given.d;
        hdr.given.f = (bit<256>) (int<256>) hdr.given.a;
    }
    action cast() {
        hdr.given.c = (int<8>) hdr.given.a;
        hdr.given.d = (int<128>) hdr.given.b;
        hdr.given.f = (bit<256>) (bit<200>) hdr.given.a;
    }
    action widest() {
        meta.sum = (int<264>) hdr.given.a - (int<264>) hdr.given.b * 3;
        hdr.given.a = (int<200>) (meta.sum >> 60);
    }
    @name("operations")
    table operations {
        key = { hdr.given.operation: exact; }
        actions = {
            add; subtract; multiply; negate; add_saturating; subtract_saturating; bits; shift;
            widen; cast; widest;
        }
        const entries = {
            1: add(); 2: subtract(); 3: multiply(); 4: negate(); 5: add_saturating();
            6: subtract_saturating(); 7: bits(); 8: shift(); 9: widen(); 10: cast(); 11: widest();
        }
        const default_action = add();
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        if (hdr.given.a < hdr.given.b) { hdr.given.seen = hdr.given.seen | 1; }
        if (hdr.given.a >= (int<200>) hdr.given.d) { hdr.given.seen = hdr.given.seen | 2; }
        if (hdr.given.a == hdr.given.b) { hdr.given.seen = hdr.given.seen | 4; }
        if (hdr.given.d > hdr.given.e) { hdr.given.seen = hdr.given.seen | 8; }
        if (hdr.given.a <= -5) { hdr.given.seen = hdr.given.seen | 16; }
        if (hdr.given.d |+| hdr.given.e != 0) { hdr.given.seen = hdr.given.seen | 32; }
        if (hdr.given.a != -1) { hdr.given.seen = hdr.given.seen | 64; }
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
