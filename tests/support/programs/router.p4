// IPv4 routing by longest prefix, behind a list of ternary rules.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_length;
    bit<8>  type_of_service;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  time_to_live;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t { }

parser RouterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
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
        transition select(hdr.ipv4.version, hdr.ipv4.header_length) {
            (4, 5): accept;
            default: reject_options;
        }
    }

    state reject_options {
        verify(false, error.ParserInvalidArgument);
        transition accept;
    }
}

control RouterVerification(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.type_of_service,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    @name("routed") direct_counter(CounterType.packets_and_bytes) routed;

    action drop() {
        mark_to_drop(standard);
    }

    action permit() { }

    action deny() {
        mark_to_drop(standard);
        exit;
    }

    action forward(bit<48> next_hop, bit<9> port) {
        routed.count();
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = next_hop;
        hdr.ipv4.time_to_live = hdr.ipv4.time_to_live - 1;
        standard.egress_spec = port;
    }

    action unreachable() {
        routed.count();
        mark_to_drop(standard);
    }

    action mark(bit<8> class) {
        hdr.ipv4.type_of_service = class;
    }

    @name("rules")
    table rules {
        key = {
            hdr.ipv4.source: ternary @name("source");
            hdr.ipv4.destination: ternary @name("destination");
            hdr.ipv4.protocol: optional @name("protocol");
        }
        actions = { permit; deny; }
        default_action = permit;
        size = 4;
    }

    @name("routes")
    table routes {
        key = { hdr.ipv4.destination: lpm @name("destination"); }
        actions = { forward; unreachable; }
        const default_action = unreachable;
        counters = routed;
        size = 16;
    }

    // The longest prefix wins, wherever it stands.
    @name("classes")
    table classes {
        key = { hdr.ipv4.source: lpm @name("source"); }
        actions = { mark; NoAction; }
        const default_action = NoAction;
        const entries = {
            0x0a000000 &&& 0xff000000: mark(1);
            0x0a010000 &&& 0xffff0000: mark(2);
            0x0a010200 &&& 0xffffff00: mark(3);
        }
    }

    apply {
        if (standard.parser_error != error.NoError || !hdr.ipv4.isValid()
            || standard.checksum_error == 1 || hdr.ipv4.time_to_live <= 1) {
            drop();
        } else {
            rules.apply();
            if (routes.apply().hit) {
                classes.apply();
            }
        }
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control RouterUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.type_of_service,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(RouterParser(), RouterVerification(), RouterIngress(), NoEgress(), RouterUpdate(),
         RouterDeparser()) main;
