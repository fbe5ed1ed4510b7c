// VLAN tags: pushed, popped, translated, up to two of them, and the groups that belong to a VLAN.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header vlan_t { bit<3> priority; bit<1> eligible; bit<12> number; bit<16> ether_type; }

struct headers_t { ethernet_t ethernet; vlan_t outer; vlan_t inner; }
struct metadata_t { bit<12> vlan; bit<3> priority; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x8100: parse_outer;
            0x88a8: parse_outer;
            default: accept;
        }
    }
    state parse_outer {
        packet.extract(hdr.outer);
        meta.vlan = hdr.outer.number;
        meta.priority = hdr.outer.priority;
        transition select(hdr.outer.ether_type) {
            0x8100: parse_inner;
            default: accept;
        }
    }
    state parse_inner {
        packet.extract(hdr.inner);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("seen") counter(4096, CounterType.packets) seen;

    action push(bit<12> number) {
        hdr.inner = hdr.outer;
        hdr.outer.setValid();
        hdr.outer.ether_type = hdr.ethernet.ether_type;
        hdr.outer.number = number;
        hdr.outer.priority = meta.priority;
        hdr.outer.eligible = 0;
        hdr.ethernet.ether_type = 0x8100;
        meta.vlan = number;
    }
    action pop() {
        if (hdr.outer.isValid()) {
            hdr.ethernet.ether_type = hdr.outer.ether_type;
        }
        hdr.outer = hdr.inner;
        hdr.inner.setInvalid();
    }
    action translate(bit<12> number, bit<3> priority) {
        hdr.outer.number = number;
        hdr.outer.priority = priority;
        meta.vlan = number;
    }
    action refuse() {
        mark_to_drop(standard);
        exit;
    }

    action forward(bit<9> port) { standard.egress_spec = port; }
    action flood(bit<2> which) { standard.mcast_grp = (bit<16>) which; }

    @name("rewrites")
    table rewrites {
        key = {
            standard.ingress_port: ternary;
            hdr.outer.isValid(): exact;
            hdr.inner.isValid(): exact;
            meta.vlan: range;
        }
        actions = { push; pop; translate; refuse; NoAction; }
        default_action = push(1);
        size = 16;
    }
    @name("bridge")
    table bridge {
        key = { meta.vlan: exact; hdr.ethernet.destination: exact; }
        actions = { forward; flood; }
        default_action = flood(1);
        size = 32;
    }
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        rewrites.apply();
        seen.count((bit<32>) meta.vlan);
        bridge.apply();
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action untag() {
        hdr.ethernet.ether_type = hdr.outer.ether_type;
        hdr.outer.setInvalid();
    }
    @name("access")
    table access {
        key = { standard.egress_port: exact; hdr.outer.number: ternary; }
        actions = { untag; NoAction; }
        default_action = NoAction;
        size = 8;
    }
    apply {
        if (hdr.outer.isValid()) {
            access.apply();
        }
    }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
