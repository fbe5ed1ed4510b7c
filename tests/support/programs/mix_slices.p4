// Slices on both sides, concatenation, casts between bool, bit and int, and constants of all widths.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<4>  a; bit<12> b; bit<3> c; bit<21> d; bit<48> e; bit<31> f; bit<1> g; bit<64> h;
    bit<72> i; bit<7> j; bit<1> k;
}
struct headers_t { given_t given; }
struct metadata_t { bool odd; bit<20> joined; int<5> small; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action reverse() {
        hdr.given.b = hdr.given.b[3:0] ++ hdr.given.b[7:4] ++ hdr.given.b[11:8];
        hdr.given.e = hdr.given.e[7:0] ++ hdr.given.e[15:8] ++ hdr.given.e[23:16]
                   ++ hdr.given.e[31:24] ++ hdr.given.e[39:32] ++ hdr.given.e[47:40];
    }
    action replace(bit<9> value) {
        hdr.given.d[14:6] = value;
        hdr.given.h[63:60] = hdr.given.a;
        hdr.given.h[0:0] = hdr.given.g;
        hdr.given.e[40:20] = hdr.given.d;
        hdr.given.i[71:64] = 0xff;
    }
    action join() {
        meta.joined = hdr.given.a ++ hdr.given.b ++ hdr.given.a;
        hdr.given.d = hdr.given.g ++ meta.joined;
        hdr.given.h = hdr.given.f ++ hdr.given.g ++ hdr.given.f ++ hdr.given.k;
        hdr.given.i = hdr.given.h ++ hdr.given.j ++ hdr.given.k;
    }
    action cast() {
        meta.odd = hdr.given.d[0:0] == 1;
        meta.small = (int<5>) hdr.given.d[4:0];
        hdr.given.g = (bit<1>) meta.odd;
        hdr.given.h = (bit<64>) (int<64>) meta.small;
        hdr.given.f = meta.odd ? 31w0x12345678 : (bit<31>) hdr.given.c;
        hdr.given.i = (bit<72>) hdr.given.e << 20;
    }
    @name("operations")
    table operations {
        key = { hdr.given.c: exact; hdr.given.a[1:0]: exact @name("low"); hdr.given.j: ternary; }
        actions = { reverse; replace; join; cast; }
        default_action = cast;
        size = 16;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        if (hdr.given.j[6:3] ++ hdr.given.k == 5w3 || !meta.odd && hdr.given.g == 1) {
            cast();
        }
        standard.egress_spec = 1 + (bit<9>) hdr.given.a[1:0];
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
