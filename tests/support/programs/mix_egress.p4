// The egress: copies that differ, tables and counters of each copy, copies that are dropped.

#include <core.p4>
#include <v1model.p4>

header given_t { bit<48> destination; bit<48> source; bit<16> ether_type; bit<16> mark; }
header note_t { bit<16> instance; bit<9> from; bit<9> to; bit<6> kind; bit<32> length; }
struct headers_t { given_t given; note_t note; }
struct metadata_t { bit<16> group; bit<8> mark; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action copy(bit<2> group, bit<8> mark) {
        standard.mcast_grp = (bit<16>) group;
        meta.mark = mark;
    }
    action unicast(bit<9> port) { standard.egress_spec = port; }
    action both(bit<9> port, bit<2> group) {
        standard.egress_spec = port;
        standard.mcast_grp = (bit<16>) group;
    }
    action drop() { mark_to_drop(standard); }
    action drop_then_send(bit<9> port) {
        mark_to_drop(standard);
        standard.egress_spec = port;
    }
    @name("spread")
    table spread {
        key = { hdr.given.destination: exact; hdr.given.mark: ternary; }
        actions = { copy; unicast; both; drop; drop_then_send; }
        default_action = copy(1, 5);
        size = 16;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        spread.apply();
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("sent") counter(8, CounterType.packets_and_bytes) sent;
    direct_counter(CounterType.packets_and_bytes) noted;
    action note() {
        noted.count();
        hdr.note.setValid();
        hdr.note.instance = standard.egress_rid;
        hdr.note.from = standard.ingress_port;
        hdr.note.to = standard.egress_port;
        hdr.note.kind = (bit<6>) standard.instance_type;
        hdr.note.length = standard.packet_length;
        hdr.given.mark[7:0] = meta.mark;
    }
    action forget() {
        noted.count();
        mark_to_drop(standard);
    }
    action pass() { noted.count(); }
    @name("notes")
    table notes {
        key = { standard.egress_rid: ternary; standard.egress_port: exact; }
        actions = { note; forget; pass; }
        default_action = note();
        counters = noted;
        size = 16;
    }
    apply {
        notes.apply();
        if (standard.egress_spec == 511) {
            sent.count(7);
        } else {
            sent.count((bit<32>) standard.egress_port);
        }
    }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
