// From bits to headers and back.
//
// Only what is addressed to INNET_UDP_PORT over unfragmented, option-less IPv4 is taken for an innet
// packet; everything else stops at the last header that forwarding needs and passes unchanged.

#ifndef INNET_PARSER_P4
#define INNET_PARSER_P4

#include "metadata.p4"
#include "../shared/headers.p4"

// BMv2's and innet-switch's --cpu-port.
const bit<9> CPU_PORT = 510;

parser IngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        meta.target = hdr.arp.target_ip;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.target = hdr.ipv4.destination;
        transition select(hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.flags & 1,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            INNET_UDP_PORT: parse_innet;
            default: accept;
        }
    }

    state parse_innet {
        packet.extract(hdr.innet);
        transition select(hdr.innet.version, hdr.innet.kind, hdr.innet.operation) {
            (INNET_VERSION, KIND_CONTRIBUTION, OPERATION_SUM): parse_lanes;
            (INNET_VERSION, KIND_CONTRIBUTION, OPERATION_MAX): parse_lanes;
            (INNET_VERSION, KIND_CLEAR, _): mark_clear;
            default: accept;
        }
    }

    state mark_clear {
        meta.clear = 1;
        transition accept;
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control ChecksumVerification(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Only a frame that the switch itself addressed needs a new checksum.
control ChecksumUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.reply != REPLY_NONE,
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.type_of_service,
              hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,
              hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control EgressDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.innet);
        packet.emit(hdr.lanes);
    }
}

#endif
