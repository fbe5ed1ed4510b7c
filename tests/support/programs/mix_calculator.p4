// A calculator of odd widths: signed and unsigned, wrapping and saturating, from 1 bit to 64.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8>  operation;
    int<7>  a7;  int<7>  b7;  bit<5>  a5;  bit<5>  b5;
    bit<13> a13; bit<13> b13; int<14> a14; int<16> b14;
    int<33> a33; int<33> b33; bit<33> c33; bit<29> filler;
    int<64> a64; int<64> b64; bit<64> c64; bit<64> d64;
    bit<1>  a1;  bit<1>  b1;  int<6>  a6;
}
struct headers_t { given_t given; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action add() {
        hdr.given.a7 = hdr.given.a7 + hdr.given.b7;
        hdr.given.a5 = hdr.given.a5 + hdr.given.b5;
        hdr.given.a13 = hdr.given.a13 + hdr.given.b13;
        hdr.given.a33 = hdr.given.a33 + hdr.given.b33;
        hdr.given.a64 = hdr.given.a64 + hdr.given.b64;
        hdr.given.c64 = hdr.given.c64 + hdr.given.d64;
        hdr.given.a1 = hdr.given.a1 + hdr.given.b1;
    }
    action subtract() {
        hdr.given.a7 = hdr.given.a7 - hdr.given.b7;
        hdr.given.a5 = hdr.given.a5 - hdr.given.b5;
        hdr.given.a13 = hdr.given.a13 - hdr.given.b13;
        hdr.given.a33 = hdr.given.a33 - hdr.given.b33;
        hdr.given.a64 = hdr.given.a64 - hdr.given.b64;
        hdr.given.c64 = hdr.given.c64 - hdr.given.d64;
        hdr.given.a6 = -hdr.given.a6;
    }
    action multiply() {
        hdr.given.a7 = hdr.given.a7 * hdr.given.b7;
        hdr.given.a13 = hdr.given.a13 * hdr.given.b13;
        hdr.given.a33 = hdr.given.a33 * hdr.given.b33;
        hdr.given.c64 = hdr.given.c64 * hdr.given.d64;
        hdr.given.a64 = hdr.given.a64 * hdr.given.b64;
    }
    action saturate_add() {
        hdr.given.a7 = hdr.given.a7 |+| hdr.given.b7;
        hdr.given.a5 = hdr.given.a5 |+| hdr.given.b5;
        hdr.given.a13 = hdr.given.a13 |+| hdr.given.b13;
        hdr.given.a33 = hdr.given.a33 |+| hdr.given.b33;
        hdr.given.a64 = hdr.given.a64 |+| hdr.given.b64;
        hdr.given.c64 = hdr.given.c64 |+| hdr.given.d64;
        hdr.given.a1 = hdr.given.a1 |+| hdr.given.b1;
    }
    action saturate_subtract() {
        hdr.given.a7 = hdr.given.a7 |-| hdr.given.b7;
        hdr.given.a5 = hdr.given.a5 |-| hdr.given.b5;
        hdr.given.a13 = hdr.given.a13 |-| hdr.given.b13;
        hdr.given.a33 = hdr.given.a33 |-| hdr.given.b33;
        hdr.given.a64 = hdr.given.a64 |-| hdr.given.b64;
        hdr.given.c64 = hdr.given.c64 |-| hdr.given.d64;
        hdr.given.a1 = hdr.given.a1 |-| hdr.given.b1;
    }
    action shift() {
        hdr.given.a7 = hdr.given.a7 >> hdr.given.b5;
        hdr.given.a13 = hdr.given.a13 << hdr.given.b5;
        hdr.given.b13 = hdr.given.b13 >> hdr.given.b5;
        hdr.given.a33 = hdr.given.a33 << (bit<8>) hdr.given.b5;
        hdr.given.b33 = hdr.given.b33 >> hdr.given.operation;
        hdr.given.c64 = hdr.given.c64 << hdr.given.operation;
        hdr.given.a64 = hdr.given.a64 >> hdr.given.operation;
    }
    action bits() {
        hdr.given.a7 = ~hdr.given.a7 & hdr.given.b7;
        hdr.given.a5 = ~hdr.given.a5 | hdr.given.b5;
        hdr.given.a33 = hdr.given.a33 ^ ~hdr.given.b33;
        hdr.given.c64 = ~(hdr.given.c64 & hdr.given.d64);
        hdr.given.a1 = ~hdr.given.a1;
    }
    action compare() {
        hdr.given.a1 = (bit<1>) (hdr.given.a7 < hdr.given.b7);
        hdr.given.b1 = (bit<1>) (hdr.given.a64 >= hdr.given.b64);
        hdr.given.a5 = hdr.given.a33 > hdr.given.b33 ? 5w1 : 5w2;
        hdr.given.b5 = hdr.given.c64 <= hdr.given.d64 ? hdr.given.b5 : 5w3;
        hdr.given.a13 = hdr.given.a13 != hdr.given.b13 ? 13w1 : 13w0;
    }
    action convert() {
        hdr.given.a33 = (int<33>) hdr.given.a7;
        hdr.given.a64 = (int<64>) hdr.given.b33;
        hdr.given.c33 = (bit<33>) hdr.given.c64;
        hdr.given.a13 = (bit<13>) hdr.given.b5;
        hdr.given.a14 = (int<14>) hdr.given.b14;
        hdr.given.b14 = (int<16>) (bit<16>) hdr.given.b13;
        hdr.given.a5 = (bit<5>) (bit<7>) hdr.given.b7;
    }

    @name("operations")
    table operations {
        key = { hdr.given.operation: ternary; }
        actions = {
            add; subtract; multiply; saturate_add; saturate_subtract; shift; bits; compare; convert;
        }
        const default_action = add;
        const entries = {
            1 &&& 0xf: subtract();
            2 &&& 0xf: multiply();
            3 &&& 0xf: saturate_add();
            4 &&& 0xf: saturate_subtract();
            5 &&& 0xf: shift();
            6 &&& 0xf: bits();
            7 &&& 0xf: compare();
            8 &&& 0xf: convert();
            9 &&& 0xb: multiply();
            0xa &&& 0xa: shift();
        }
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        standard.egress_spec = 1;
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
