// A router in steps: prefix to next hop, next hop to neighbour, and in the egress port to own address.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header ipv4_t {
    bit<4> version; bit<4> header_length; bit<6> service; bit<2> congestion;
    bit<16> total_length; bit<16> identification; bit<3> flags; bit<13> fragment_offset;
    bit<8> time_to_live; bit<8> protocol; bit<16> checksum; bit<32> source; bit<32> destination;
}

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { bit<16> next_hop; bit<10> domain; }

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
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_length == 5,
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.service, hdr.ipv4.congestion,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("routed") direct_counter(CounterType.bytes) routed;
    @name("errors") counter(3, CounterType.packets_and_bytes) errors;

    action drop() { mark_to_drop(standard); }
    action set_domain(bit<10> domain) { meta.domain = domain; }
    action via(bit<16> next_hop) { meta.next_hop = next_hop; routed.count(); }
    action black_hole() { routed.count(); drop(); }
    action to(bit<48> address, bit<9> port) {
        hdr.ethernet.destination = address;
        standard.egress_spec = port;
        hdr.ipv4.time_to_live = hdr.ipv4.time_to_live - 1;
    }

    @name("domains")
    table domains {
        key = { standard.ingress_port: exact; }
        actions = { set_domain; }
        default_action = set_domain(0);
        size = 8;
    }
    @name("routes")
    table routes {
        key = { meta.domain: exact; hdr.ipv4.destination: lpm; }
        actions = { via; black_hole; drop; }
        default_action = drop();
        counters = routed;
        size = 32;
    }
    @name("next_hops")
    table next_hops {
        key = { meta.next_hop: exact; }
        actions = { to; drop; }
        default_action = to(0x0a0b0c0d0e0f, 2);
        size = 32;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        if (!hdr.ipv4.isValid()) {
            errors.count(0);
            drop();
        } else if (standard.checksum_error == 1) {
            errors.count(1);
            drop();
        } else if (hdr.ipv4.time_to_live < 2) {
            errors.count(2);
            drop();
        } else {
            domains.apply();
            switch (routes.apply().action_run) {
                via: { next_hops.apply(); }
                default: { }
            }
        }
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("sent") counter(8, CounterType.packets_and_bytes) sent;
    action from(bit<48> address) { hdr.ethernet.source = address; }

    @name("ports")
    table ports {
        key = { standard.egress_port: exact; }
        actions = { from; NoAction; }
        default_action = NoAction;
        size = 8;
    }
    apply {
        ports.apply();
        sent.count((bit<32>) standard.egress_port);
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.service, hdr.ipv4.congestion,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(P(), Verify(), Inward(), Outward(), Update(), D()) main;
