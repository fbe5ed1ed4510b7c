// Wide values wherever they can stand: arguments, registers, keys of tables and of the parser.

#include <core.p4>
#include <v1model.p4>

header given_t { bit<8> operation; bit<8> cell; bit<256> a; bit<200> b; int<136> c; bit<32> hash; }
header more_t { bit<256> a; }
struct headers_t { given_t given; more_t more; }
struct metadata_t { bit<256> kept; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    value_set<bit<200>>(4) known;

    state start {
        packet.extract(hdr.given);
        transition select(hdr.given.a, hdr.given.operation) {
            (0x1234567890abcdef1234567890abcdef1234567890abcdef1234567890abcdef, _): more;
            (1, 3): more;
            (0 &&& 0xff << 248, 2 &&& 3): ahead;
            default: kept;
        }
    }
    state kept {
        transition select(hdr.given.b) {
            known: more;
            0xff << 192 &&& 0xff << 192: more;
            default: accept;
        }
    }
    state ahead {
        meta.kept = packet.lookahead<bit<256>>();
        transition select(packet.lookahead<bit<256>>()) {
            0 &&& 1: more;
            default: accept;
        }
    }
    state more {
        packet.extract(hdr.more);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<256>>(4) numbers;
    register<int<136>>(4) signed_numbers;

    action set(bit<256> a, bit<16> mask, int<136> c, bit<200> b) {
        hdr.given.a = hdr.given.a + a;
        hdr.given.b = b ^ (bit<200>) mask;
        hdr.given.c = hdr.given.c + c;
    }
    action take(bit<256> a, bit<200> b) {
        hdr.given.a = a;
        hdr.given.b = b;
        hdr.given.hash = a[47:16];
    }
    action exchange() {
        bit<256> held;
        int<136> number;
        numbers.read(held, (bit<32>) hdr.given.cell);
        numbers.write((bit<32>) hdr.given.cell, hdr.given.a + held);
        hdr.given.a = held;
        signed_numbers.read(number, (bit<32>) hdr.given.cell[1:0]);
        signed_numbers.write((bit<32>) hdr.given.cell[1:0], hdr.given.c - number);
        hdr.given.c = number;
    }
    @name("operations")
    table operations {
        key = {
            hdr.given.a & (0xffff << 240 | 0xf): ternary;
            hdr.given.b: range;
            hdr.given.operation[1:0]: exact;
        }
        actions = { set; take; exchange; }
        default_action = take(5 << 200, 7 << 150);
        size = 16;
    }
    @name("exactly")
    table exactly {
        key = { hdr.given.b: exact; }
        actions = { set; exchange; }
        default_action = exchange();
        size = 16;
    }
    @name("by_prefix")
    table by_prefix {
        key = { meta.kept: lpm; }
        actions = { take; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        operations.apply();
        log_msg("numbers {} and {}", { hdr.given.a, hdr.given.c });
        exactly.apply();
        by_prefix.apply();
        if (hdr.more.isValid()) {
            hash(hdr.given.hash, HashAlgorithm.crc32, 32w0, { hdr.more.a, 200w77, hdr.given.c },
                 32w0xffffffff);
            hdr.more.a = meta.kept;
        }
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
