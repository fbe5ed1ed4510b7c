// Arithmetic on numbers without a sign that are wider than any register of a processor.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8> operation; bit<8> by; bit<256> a; bit<256> b; bit<130> c; bit<6> filler; bit<128> d;
    bit<128> e; bit<16> seen;
}
struct headers_t { given_t given; }
struct metadata_t { bit<300> sum; }

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
        hdr.given.c = hdr.given.c + 1;
    }
    action subtract() {
        hdr.given.a = hdr.given.a - hdr.given.b;
        hdr.given.c = hdr.given.c - (bit<130>) hdr.given.d;
    }
    action multiply() {
        hdr.given.a = hdr.given.a * hdr.given.b;
        hdr.given.d = hdr.given.d * hdr.given.e;
    }
    action negate() {
        hdr.given.a = -hdr.given.a;
        hdr.given.c = ~hdr.given.c;
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
        hdr.given.a = (hdr.given.a & hdr.given.b) | (hdr.given.a ^ ~hdr.given.b);
    }
    action shift_left() {
        hdr.given.a = hdr.given.a << hdr.given.by;
        hdr.given.c = hdr.given.c << 77;
        hdr.given.d = hdr.given.d << hdr.given.by;
    }
    action shift_right() {
        hdr.given.a = hdr.given.a >> hdr.given.by;
        hdr.given.c = hdr.given.c >> 77;
        hdr.given.b = hdr.given.b >> 200;
    }
    action join() {
        hdr.given.a = hdr.given.c[129:0] ++ hdr.given.d[127:2];
        hdr.given.c = hdr.given.b[255:200] ++ hdr.given.b[73:0];
    }
    action cut() {
        hdr.given.seen = (hdr.given.a ++ hdr.given.b ++ hdr.given.c)[410:395];
        hdr.given.a[250:90] = hdr.given.b[161:1];
        hdr.given.c[100:3] = hdr.given.d[97:0];
    }
    action widen() {
        meta.sum = (bit<300>) hdr.given.a * 0x123456789abcdef0123456789abcdef + (bit<300>) hdr.given.c;
        hdr.given.a = meta.sum[299:44];
        hdr.given.d = (bit<128>) meta.sum;
        hdr.given.c = (bit<130>) hdr.given.by;
    }
    @name("operations")
    table operations {
        key = { hdr.given.operation: exact; }
        actions = {
            add; subtract; multiply; negate; add_saturating; subtract_saturating; bits; shift_left;
            shift_right; join; cut; widen;
        }
        const entries = {
            1: add(); 2: subtract(); 3: multiply(); 4: negate(); 5: add_saturating();
            6: subtract_saturating(); 7: bits(); 8: shift_left(); 9: shift_right(); 10: join();
            11: cut(); 12: widen();
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
        if (hdr.given.a >= (bit<256>) hdr.given.c) { hdr.given.seen = hdr.given.seen | 2; }
        if (hdr.given.a + 1 == hdr.given.b) { hdr.given.seen = hdr.given.seen | 4; }
        if (hdr.given.d > hdr.given.e) { hdr.given.seen = hdr.given.seen | 8; }
        if (hdr.given.a - hdr.given.b <= 1 << 255) { hdr.given.seen = hdr.given.seen | 16; }
        if (hdr.given.d |+| hdr.given.e != 0) { hdr.given.seen = hdr.given.seen | 32; }
        if ((hdr.given.c >> 128) != 0) { hdr.given.seen = hdr.given.seen | 64; }
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
