// Tunnels: a header of our own, between Ethernet and IPv4, is put on, taken off, or replaced.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header tunnel_t { bit<16> ether_type; bit<24> tunnel; bit<3> hops; bit<5> flags; }
header label_t { bit<20> label; bit<3> class; bit<1> last; bit<8> time_to_live; }

struct headers_t { ethernet_t ethernet; tunnel_t tunnel; tunnel_t inner; label_t label; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x1212: parse_tunnel;
            0x8847 &&& 0xfffe: parse_label;
            default: accept;
        }
    }
    state parse_tunnel {
        packet.extract(hdr.tunnel);
        transition select(hdr.tunnel.ether_type, hdr.tunnel.flags) {
            (0x1212, _): parse_inner;
            (0x8847, 1): parse_label;
            default: accept;
        }
    }
    state parse_inner {
        packet.extract(hdr.inner);
        transition accept;
    }
    state parse_label {
        packet.extract(hdr.label);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action enter(bit<24> tunnel, bit<3> hops, bit<9> port) {
        hdr.tunnel.setValid();
        hdr.tunnel.ether_type = hdr.ethernet.ether_type;
        hdr.tunnel.tunnel = tunnel;
        hdr.tunnel.hops = hops;
        hdr.tunnel.flags = 0;
        hdr.ethernet.ether_type = 0x1212;
        standard.egress_spec = port;
    }
    action nest(bit<24> tunnel) {
        hdr.inner = hdr.tunnel;
        hdr.tunnel.ether_type = 0x1212;
        hdr.tunnel.tunnel = tunnel;
        standard.egress_spec = 1;
    }
    action leave(bit<9> port) {
        hdr.ethernet.ether_type = hdr.tunnel.ether_type;
        hdr.tunnel.setInvalid();
        standard.egress_spec = port;
    }
    action leave_both(bit<9> port) {
        if (hdr.inner.isValid()) {
            hdr.ethernet.ether_type = hdr.inner.ether_type;
        }
        hdr.tunnel.setInvalid();
        hdr.inner.setInvalid();
        standard.egress_spec = port;
    }
    action swap(bit<24> tunnel, bit<9> port) {
        hdr.tunnel.tunnel = tunnel;
        hdr.tunnel.hops = hdr.tunnel.hops - 1;
        standard.egress_spec = port;
    }
    action push_label(bit<20> label, bit<3> class) {
        hdr.label.setValid();
        hdr.label.label = label;
        hdr.label.class = class;
        hdr.label.last = 1;
        hdr.label.time_to_live = 64;
        standard.egress_spec = 4;
    }
    action drop() { mark_to_drop(standard); }

    @name("entrances")
    table entrances {
        key = { hdr.ethernet.destination: exact; standard.ingress_port: ternary; }
        actions = { enter; push_label; drop; }
        default_action = enter(0x123456, 7, 3);
        size = 16;
    }
    @name("transit")
    table transit {
        key = { hdr.tunnel.tunnel: lpm; hdr.inner.isValid(): exact; hdr.label.isValid(): exact; }
        actions = { swap; leave; leave_both; nest; drop; }
        default_action = drop;
        size = 16;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        if (hdr.tunnel.isValid()) {
            if (hdr.tunnel.hops == 0) {
                drop();
            } else {
                transit.apply();
            }
        } else if (!hdr.label.isValid()) {
            entrances.apply();
        } else {
            hdr.label.time_to_live = hdr.label.time_to_live - 1;
            standard.egress_spec = (bit<9>) hdr.label.class;
        }
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.label.isValid() && hdr.label.time_to_live == 0) {
            mark_to_drop(standard);
        }
    }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
