// Translation of addresses and ports in both directions; header checksum renewed, UDP's cleared.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header ipv4_t {
    bit<8> version_and_length; bit<8> type_of_service; bit<16> total_length;
    bit<32> fragment; bit<8> time_to_live; bit<8> protocol; bit<16> checksum;
    bit<32> source; bit<32> destination;
}
header udp_t { bit<16> source; bit<16> destination; bit<16> length; bit<16> checksum; }

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; }
struct metadata_t { bool translated; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        meta.translated = false;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version_and_length == 0x45, error.HeaderTooShort);
        transition select(hdr.ipv4.protocol) {
            17: parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("inside") counter(4, CounterType.packets) inside;

    action outward(bit<32> address, bit<16> port) {
        hdr.ipv4.source = address;
        hdr.udp.source = port;
        meta.translated = true;
        inside.count(0);
    }
    action inward(bit<32> address, bit<16> port) {
        hdr.ipv4.destination = address;
        hdr.udp.destination = port;
        meta.translated = true;
        inside.count(1);
    }
    action miss() { inside.count(2); }

    @name("sources")
    table sources {
        key = { hdr.ipv4.source: exact; hdr.udp.source: exact; }
        actions = { outward; miss; }
        default_action = miss;
        size = 16;
    }
    @name("destinations")
    table destinations {
        key = { hdr.ipv4.destination: lpm; hdr.udp.destination: exact; }
        actions = { inward; NoAction; }
        default_action = NoAction;
        size = 16;
    }

    apply {
        if (standard.parser_error == error.NoError && hdr.udp.isValid()) {
            if (!sources.apply().hit) {
                destinations.apply();
            }
            if (meta.translated) {
                hdr.udp.checksum = 0;
                hdr.ipv4.time_to_live = hdr.ipv4.time_to_live |-| 1;
            }
        } else if (standard.parser_error == error.PacketTooShort) {
            hdr.ethernet.source = 1;
        } else if (standard.parser_error == error.NoMatch) {
            hdr.ethernet.source = 2;
        } else if (standard.parser_error == error.HeaderTooShort) {
            hdr.ethernet.source = 3;
        }
        standard.egress_spec = standard.ingress_port ^ 1;
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.translated && hdr.ipv4.isValid(),
            { hdr.ipv4.version_and_length, hdr.ipv4.type_of_service, hdr.ipv4.total_length,
              hdr.ipv4.fragment, hdr.ipv4.time_to_live, hdr.ipv4.protocol, hdr.ipv4.source,
              hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(P(), Nothing(), Inward(), Outward(), Update(), D()) main;
