// Registers and counters beyond their ends, and indices that change under way.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8> operation; bit<32> cell; bit<16> a; bit<16> b; bit<16> c; bit<8> d; bit<32> other;
}
header spare_t { bit<32> cell; bit<16> a; }
struct headers_t { given_t given; given_t copy; spare_t[2] spares; }
struct metadata_t { bit<16> held; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        packet.extract(hdr.copy);
        packet.extract(hdr.spares.next);
        packet.extract(hdr.spares.next);
        // Nobody can tell from their type, but about half of these are inside.
        hdr.given.cell = hdr.given.cell & 0xf;
        hdr.given.other = hdr.given.other & 0xf;
        hdr.copy.cell = hdr.copy.cell & 0xf;
        hdr.spares[0].cell = hdr.spares[0].cell & 0xf;
        hdr.spares[1].cell = hdr.spares[1].cell & 0xf;
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(8) as;
    register<bit<16>>(8) bs;
    register<bit<16>>(8) cs;
    register<bit<8>>(7) ds;
    register<bit<32>>(2) others;
    register<bit<16>>(12) all;
    counter(5, CounterType.packets) seen;

    // Enough accesses to one row that it is looked up once, also where it is outside.
    action exchange() {
        bit<16> held;
        as.read(held, hdr.given.cell);
        as.write(hdr.given.cell, hdr.given.a + 1);
        hdr.given.a = held;
        bs.read(hdr.given.b, hdr.given.cell);
        bs.write(hdr.given.cell, hdr.given.b + hdr.given.c);
        cs.read(meta.held, hdr.given.cell);
        cs.write(hdr.given.cell, hdr.given.c ^ meta.held);
        hdr.given.c = meta.held;
        ds.read(hdr.given.d, hdr.given.other);
        ds.write(hdr.given.other, hdr.given.d + 3);
        seen.count(hdr.given.cell);
    }
    action two_rows() {
        as.write(hdr.given.cell, hdr.given.c);
        as.read(hdr.given.a, hdr.given.other);
        as.read(hdr.given.b, (bit<32>) hdr.given.a);
    }
    // Each of these changes the index between its accesses.
    action by_field() {
        all.write(hdr.given.cell, hdr.given.a);
        hdr.given.cell = hdr.given.other;
        all.read(hdr.given.b, hdr.given.cell);
    }
    action by_header() {
        all.write(hdr.given.cell, hdr.given.a);
        hdr.given = hdr.copy;
        all.read(hdr.given.b, hdr.given.cell);
    }
    action by_pop() {
        all.write(hdr.spares[0].cell, hdr.given.a);
        hdr.spares.pop_front(1);
        all.read(hdr.given.b, hdr.spares[0].cell);
    }
    action by_reading() {
        all.write(hdr.given.cell, hdr.given.a);
        others.read(hdr.given.cell, 1);
        all.read(hdr.given.b, hdr.given.cell);
        others.write(1, hdr.given.other);
    }
    @name("operations")
    table operations {
        key = { hdr.given.operation: exact; }
        actions = { exchange; two_rows; by_field; by_header; by_pop; by_reading; }
        const entries = {
            1: two_rows(); 2: by_field(); 3: by_header(); 4: by_pop(); 5: by_reading();
        }
        const default_action = exchange();
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
