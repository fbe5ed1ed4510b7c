// Registers of all widths, read and written in both pipelines.

#include <core.p4>
#include <v1model.p4>

header given_t {
    bit<8> operation; bit<8> cell; bit<5> five; bit<3> filler; bit<48> wide; int<16> number;
    bit<32> count;
}
struct headers_t { given_t given; }
struct metadata_t { bit<5> five; int<16> number; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<5>>(16) fives;
    register<bit<48>>(16) wides;
    register<int<16>>(4) numbers;

    action exchange() {
        bit<48> held;
        wides.read(held, (bit<32>) hdr.given.cell[3:0]);
        wides.write((bit<32>) hdr.given.cell[3:0], hdr.given.wide);
        hdr.given.wide = held;
    }
    action add(bit<5> value) {
        fives.read(meta.five, (bit<32>) hdr.given.cell[3:0]);
        meta.five = meta.five + value + hdr.given.five;
        fives.write((bit<32>) hdr.given.cell[3:0], meta.five);
        hdr.given.five = meta.five;
    }
    action largest() {
        numbers.read(meta.number, (bit<32>) hdr.given.cell[1:0]);
        if (hdr.given.number > meta.number) {
            numbers.write((bit<32>) hdr.given.cell[1:0], hdr.given.number);
        }
        hdr.given.number = meta.number;
    }
    action chain() {
        wides.read(hdr.given.wide, 0);
        wides.read(hdr.given.wide, (bit<32>) hdr.given.wide[3:0]);
        wides.write((bit<32>) hdr.given.wide[3:0], hdr.given.wide + 1);
    }
    @name("operations")
    table operations {
        key = { hdr.given.operation: exact; }
        actions = { exchange; add; largest; chain; }
        default_action = exchange();
        size = 16;
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
    register<bit<32>>(8) sent;
    apply {
        sent.read(hdr.given.count, (bit<32>) standard.egress_port[2:0]);
        hdr.given.count = hdr.given.count + 1;
        sent.write((bit<32>) standard.egress_port[2:0], hdr.given.count);
    }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
