// From bits to headers and back.
//
// Only what is addressed to INNET_UDP_PORT over unfragmented, option-less IPv4 is taken for an innet
// packet; everything else stops at the last header that forwarding needs and passes unchanged.
// Of innet packets, those are complete that have a form: version, kind, operation, the flag that tells
// of lanes, and the lengths that IPv4 and UDP state have to go together. A result may lack lanes that
// were carried: this switch did not ask for them.

#ifndef INNET_PARSER_P4
#define INNET_PARSER_P4

#include "metadata.p4"

parser IngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_QINQ: parse_vlan;
            default: accept;
        }
    }

    // Of what is tagged the bridge must know who sent it, for hosts look behind some tags. Nobody needs
    // more than two: a third is an error.
    state parse_vlan {
        packet.extract(hdr.vlans.next);
        transition select(hdr.vlans.last.ether_type) {
            ETHERTYPE_ARP: find_arp_sender;
            ETHERTYPE_IPV4: find_ipv4_sender;
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_QINQ: parse_vlan;
            default: accept;
        }
    }

    state find_arp_sender {
        meta.sender = packet.lookahead<bit<144>>()[31:0];
        transition accept;
    }

    state find_ipv4_sender {
        meta.sender = packet.lookahead<bit<128>>()[31:0];
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.sender = hdr.ipv4.source;
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
        transition select(hdr.innet.version, hdr.ipv4.total_length, hdr.udp.length) {
            (INNET_VERSION, FULL_IPV4_LENGTH, FULL_UDP_LENGTH): full_innet;
            (INNET_VERSION, BARE_IPV4_LENGTH, BARE_UDP_LENGTH): bare_innet;
            default: accept;
        }
    }

    state full_innet {
        transition select(hdr.innet.kind, hdr.innet.operation, IS_CARRIED(hdr.innet.flags)) {
            (KIND_CONTRIBUTION, OPERATION_SUM, 1): contribution;
            (KIND_CONTRIBUTION, OPERATION_MAX, 1): contribution;
            (KIND_CONTRIBUTION, OPERATION_WRAPPING_SUM, 1): contribution;
            (KIND_RESULT,       OPERATION_SUM, 1): result;
            (KIND_RESULT,       OPERATION_MAX, 1): result;
            (KIND_RESULT,       OPERATION_WRAPPING_SUM, 1): result;
            default: accept;
        }
    }

    state bare_innet {
        transition select(hdr.innet.kind, hdr.innet.operation, IS_CARRIED(hdr.innet.flags)) {
            (KIND_CONTRIBUTION, OPERATION_SUM, 0): bare_contribution;
            (KIND_RESULT,       OPERATION_SUM, 0): bare_result;
            (KIND_RESULT,       OPERATION_SUM, 1): withheld_result;
            (KIND_RESULT,       OPERATION_MAX, _): withheld_result;
            (KIND_RESULT,       OPERATION_WRAPPING_SUM, _): withheld_result;
            (KIND_QUERY,        OPERATION_SUM, _): query;
            (KIND_QUERY,        OPERATION_MAX, _): query;
            (KIND_QUERY,        OPERATION_WRAPPING_SUM, _): query;
            (KIND_PENDING,      _,             _): pending;
            (KIND_STALE,        _,             _): stale;
            (KIND_HELLO,        0,             _): hello;
            (KIND_CLEAR,        0,             _): clear;
            default: accept;
        }
    }

    state withheld_result {
        meta.form = FORM_WITHHELD;
        transition accept;
    }

    #include "../shared/fragments/states.p4"
}

// What is only forwarded is its receiver's to judge.
control ChecksumVerification(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.innet.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

// Only a frame that the switch itself addressed needs a new checksum.
control ChecksumUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.addressed == 1, IPV4_FIELDS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control EgressDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlans);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.innet);
        packet.emit(hdr.lanes);
    }
}

#endif
