// An access list: ternary, range, optional and exact components, entries that overlap, two lists.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header ipv4_t {
    bit<4> version; bit<4> header_length; bit<8> type_of_service; bit<16> total_length;
    bit<16> identification; bit<3> flags; bit<13> fragment_offset;
    bit<8> time_to_live; bit<8> protocol; bit<16> checksum;
    bit<32> source; bit<32> destination;
}
header ports_t { bit<16> source; bit<16> destination; }

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; ports_t ports; }
struct metadata_t { bit<4> class; bit<1> trusted; bit<16> from; bit<16> to; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 6): parse_ports;
            (0, 17): parse_ports;
            default: accept;
        }
    }
    state parse_ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) addresses_hit;
    direct_counter(CounterType.packets) ports_hit;

    action classify(bit<4> class, bit<1> trusted) {
        addresses_hit.count();
        meta.class = class;
        meta.trusted = trusted;
    }
    action deny() {
        ports_hit.count();
        mark_to_drop(standard);
    }
    action permit(bit<9> port, bit<8> mark) {
        ports_hit.count();
        standard.egress_spec = port;
        hdr.ipv4.type_of_service = mark;
    }

    @name("addresses")
    table addresses {
        key = {
            hdr.ipv4.source: ternary;
            hdr.ipv4.destination: ternary;
            standard.ingress_port: optional;
        }
        actions = { classify; @defaultonly NoAction; }
        default_action = NoAction;
        counters = addresses_hit;
        size = 16;
    }

    @name("services")
    table services {
        key = {
            hdr.ports.isValid(): exact;
            meta.to: range;
            meta.from: ternary;
            meta.class: range;
            meta.trusted: ternary;
        }
        actions = { permit; deny; }
        default_action = deny;
        counters = ports_hit;
        size = 16;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        if (!hdr.ipv4.isValid()) {
            mark_to_drop(standard);
            return;
        }
        if (hdr.ports.isValid()) {
            meta.from = hdr.ports.source;
            meta.to = hdr.ports.destination;
        }
        addresses.apply();
        services.apply();
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
