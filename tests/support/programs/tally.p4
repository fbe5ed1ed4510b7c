// A calculator with memory: one arithmetic operation on one cell of a register, answered at once.

#include <core.p4>
#include <v1model.p4>

const bit<16> TALLY = 0x88b5;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header tally_t {
    bit<8>  operation;
    bit<32> cell;
    bit<32> other;
    bit<32> value;
}

struct headers_t {
    ethernet_t ethernet;
    tally_t    tally;
}

struct metadata_t { }

parser TallyParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            TALLY: parse_tally;
            default: accept;
        }
    }

    state parse_tally {
        packet.extract(hdr.tally);
        transition accept;
    }
}

control TallyIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    register<bit<32>>(16) cells;
    @name("used") counter(16, CounterType.packets_and_bytes) used;
    bit<32> held;

    action keep() {
        cells.write(hdr.tally.cell, hdr.tally.value);
    }
    action add() {
        hdr.tally.value = held + hdr.tally.value;
        keep();
    }
    action add_saturating() {
        hdr.tally.value = held |+| hdr.tally.value;
        keep();
    }
    action subtract_saturating() {
        hdr.tally.value = held |-| hdr.tally.value;
        keep();
    }
    action add_signed() {
        hdr.tally.value = (bit<32>) ((int<32>) held |+| (int<32>) hdr.tally.value);
        keep();
    }
    action rotate() {
        hdr.tally.value = held[23:0] ++ held[31:24];
        keep();
    }
    action shift() {
        hdr.tally.value = (bit<32>) ((int<32>) held >> hdr.tally.value[4:0]);
        keep();
    }
    // The other cell may be the same one.
    action write_then_read_other() {
        keep();
        cells.read(hdr.tally.value, hdr.tally.other);
    }
    action refuse() {
        mark_to_drop(standard);
    }

    @name("operations")
    table operations {
        key = { hdr.tally.operation: exact @name("operation"); }
        actions = {
            add; add_saturating; subtract_saturating; add_signed; rotate; shift;
            write_then_read_other; refuse;
        }
        const default_action = refuse;
        const entries = {
            1: add();
            2: add_saturating();
            3: subtract_saturating();
            4: add_signed();
            5: rotate();
            6: shift();
            7: write_then_read_other();
        }
    }

    apply {
        if (hdr.tally.isValid()) {
            standard.egress_spec = standard.ingress_port;
            cells.read(held, hdr.tally.cell);
            if (operations.apply().hit) {
                used.count(hdr.tally.cell);
            }
        } else {
            mark_to_drop(standard);
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TallyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.tally);
    }
}

V1Switch(TallyParser(), NoVerification(), TallyIngress(), NoEgress(), NoUpdate(),
         TallyDeparser()) main;
