// Fields wider than a machine word: compared, matched, added, joined and shifted.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8> operation; bit<128> a; bit<128> b; bit<80> c; bit<72> d; bit<96> e; bit<100> f; bit<4> g;
}
struct headers_t { given_t given; }
struct metadata_t { bit<128> kept; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<96>>(4) cells;
    direct_counter(CounterType.packets) matched;

    action set(bit<128> value, bit<72> other) {
        hdr.given.a = value;
        hdr.given.d = other;
        matched.count();
    }
    action shift(bit<6> by) {
        hdr.given.c = hdr.given.c << by;
        hdr.given.e = hdr.given.e >> by;
        hdr.given.f = hdr.given.f >> 7;
        matched.count();
    }
    action mix() {
        hdr.given.a = hdr.given.a ^ hdr.given.b;
        hdr.given.e = hdr.given.e & ~(bit<96>) hdr.given.c;
        hdr.given.d = hdr.given.c[79:8];
        hdr.given.f = hdr.given.a[99:0];
        matched.count();
    }
    action add() {
        hdr.given.c = hdr.given.c + (bit<80>) hdr.given.d;
        hdr.given.e = hdr.given.e - 1;
        hdr.given.f = hdr.given.f + 0x123456789abcdef0123;
        matched.count();
    }
    @name("operations")
    table operations {
        key = {
            hdr.given.operation: exact;
            hdr.given.a: lpm;
            hdr.given.b: ternary;
            hdr.given.c: ternary;
        }
        actions = { set; shift; mix; add; }
        default_action = mix();
        counters = matched;
        size = 16;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        if (hdr.given.a == hdr.given.b) {
            meta.kept = hdr.given.b;
        } else if (hdr.given.c > hdr.given.e[79:0] || hdr.given.f != 3) {
            bit<96> cell;
            cells.read(cell, (bit<32>) hdr.given.g[1:0]);
            cells.write((bit<32>) hdr.given.g[1:0], hdr.given.e);
            hdr.given.e = cell;
        }
        if (meta.kept != 0) {
            hdr.given.a = meta.kept;
            hdr.given.g = 0xf;
        }
        standard.egress_spec = 2;
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
