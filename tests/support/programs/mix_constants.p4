// Constant tables of every kind of match, and entries with priorities of their own.

#include <core.p4>
#include <v1model.p4>

header given_t { bit<8> exact8; bit<16> lpm16; bit<12> ternary12; bit<4> range4; bit<8> result; }
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
    action is(bit<8> value) { hdr.given.result = value; }
    action plus(bit<8> value) { hdr.given.result = hdr.given.result + value; }

    table by_value {
        key = { hdr.given.exact8: exact; }
        actions = { is; NoAction; }
        default_action = is(0xff);
        const entries = {
            0: is(1);
            1: is(2);
            255: is(3);
            0x80: NoAction();
        }
    }
    table by_prefix {
        key = { hdr.given.exact8: exact; hdr.given.lpm16: lpm; }
        actions = { plus; is; }
        const default_action = plus(0x10);
        const entries = {
            (0, 0x8000 &&& 0x8000): plus(0x20);
            (0, 0xff00 &&& 0xff00): plus(0x30);
            (0, _): plus(0x40);
            (1, 0x0000 &&& 0xc000): plus(0x50);
            (1, 0xffff): is(0x60);
        }
    }
    table by_mask {
        key = { hdr.given.ternary12: ternary; hdr.given.range4: range; }
        actions = { plus; is; NoAction; }
        const default_action = plus(1);
        const entries = {
            (0x001 &&& 0x001, 0..3): plus(2);
            (_, 3..12): plus(3);
            (0xf00 &&& 0xf00, _): is(4);
            (0x002 &&& 0x003, 15): NoAction();
        }
    }
    table by_priority {
        key = { hdr.given.lpm16: ternary; hdr.given.ternary12: ternary; }
        actions = { plus; is; }
        default_action = plus(11);
        entries = {
            const priority = 30: (0x0001 &&& 0x0001, _): plus(13);
            priority = 20: (_, 0xfff): is(14);
            priority = 10: (0x0000 &&& 0x8000, _): plus(12);
        }
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        hdr.given.result = 0;
        by_value.apply();
        by_prefix.apply();
        by_mask.apply();
        by_priority.apply();
        standard.egress_spec = 1;
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
