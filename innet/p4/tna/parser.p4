// From bits to headers and back.
//
// As on v1model, only what is addressed to INNET_UDP_PORT over unfragmented, option-less IPv4 is taken
// for an innet packet. A parser state can look at 32 bits, so the lengths are matched one after the
// other: there is a chain of states each for packets with lanes, without, and of any other length.

#ifndef INNET_PARSER_P4
#define INNET_PARSER_P4

#include "metadata.p4"

#define EXTRACT_IPV4                                     \
    packet.extract(hdr.ipv4);                            \
    ipv4_checksum.add(hdr.ipv4);                         \
    meta.corrupted = ipv4_checksum.verify();               \
    meta.sender = hdr.ipv4.source;                       \
    meta.target = hdr.ipv4.destination;

#define HAS_UDP                                                                          \
    (hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.flags, hdr.ipv4.fragment_offset, \
     hdr.ipv4.protocol)

#define PLAIN_UDP (4, 5, 0 &&& 1, 0, PROTOCOL_UDP)

parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t standard) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        meta.form = FORM_NONE;
        meta.corrupted = false;
        meta.refused = 0;
        meta.mine = 0;
        meta.above = 0;
        meta.admitted = 0;
        meta.worker = 0;
        meta.below = 0;
        meta.elsewhere = 0;
        meta.age = AGE_NONE;
        meta.fold = FOLD_NONE;
        meta.outcome = OUTCOME_NONE;
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
#if __TARGET_TOFINO__ == 1
            RECIRCULATION_PORT(0) &&& 0x7f: parse_again;
#endif
            default: parse_ethernet;
        }
    }

#if __TARGET_TOFINO__ == 1
    // Nothing comes this way but what the first pass has sent.
    state parse_again {
        packet.extract(hdr.bridge);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.innet);
        packet.extract(hdr.lanes);
        meta.form = FORM_AGAIN;
        transition accept;
    }
#endif

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_ARP: look_at_arp;
            ETHERTYPE_IPV4: measure;
            ETHERTYPE_VLAN: parse_tag;
            ETHERTYPE_QINQ: parse_tag;
            default: accept;
        }
    }

    // Of what is tagged the bridge must know who sent it, for hosts look behind some tags. Nobody needs
    // more than two: a third is an error. The tags themselves stay payload.
    state parse_tag {
        transition select(packet.lookahead<bit<32>>()[15:0]) {
            ETHERTYPE_ARP: find_arp_sender;
            ETHERTYPE_IPV4: find_ipv4_sender;
            ETHERTYPE_VLAN: parse_second_tag;
            ETHERTYPE_QINQ: parse_second_tag;
            default: accept;
        }
    }

    state parse_second_tag {
        transition select(packet.lookahead<bit<64>>()[15:0]) {
            ETHERTYPE_ARP: find_arp_sender_behind_two;
            ETHERTYPE_IPV4: find_ipv4_sender_behind_two;
            ETHERTYPE_VLAN: reject;
            ETHERTYPE_QINQ: reject;
            default: accept;
        }
    }

    state find_arp_sender {
        meta.sender = packet.lookahead<bit<176>>()[31:0];
        transition accept;
    }

    state find_ipv4_sender {
        meta.sender = packet.lookahead<bit<160>>()[31:0];
        transition accept;
    }

    state find_arp_sender_behind_two {
        meta.sender = packet.lookahead<bit<208>>()[31:0];
        transition accept;
    }

    state find_ipv4_sender_behind_two {
        meta.sender = packet.lookahead<bit<192>>()[31:0];
        transition accept;
    }

    state look_at_arp {
        transition select(packet.lookahead<bit<32>>()) {
            ARP_ETHERNET ++ ETHERTYPE_IPV4: look_for_question;
            default: parse_arp;
        }
    }

    state look_for_question {
        transition select(packet.lookahead<bit<64>>()[15:0]) {
            ARP_REQUEST: question;
            default: parse_arp;
        }
    }

    state question {
        meta.form = FORM_QUESTION;
        transition parse_arp;
    }

    state measure {
        transition select(packet.lookahead<bit<32>>()[15:0]) {
            FULL_IPV4_LENGTH: full_ipv4;
            BARE_IPV4_LENGTH: bare_ipv4;
            default: other_ipv4;
        }
    }

    state full_ipv4 {
        EXTRACT_IPV4
        transition select HAS_UDP {
            PLAIN_UDP: full_udp;
            default: accept;
        }
    }

    state bare_ipv4 {
        EXTRACT_IPV4
        transition select HAS_UDP {
            PLAIN_UDP: bare_udp;
            default: accept;
        }
    }

    state other_ipv4 {
        EXTRACT_IPV4
        transition select HAS_UDP {
            PLAIN_UDP: other_udp;
            default: accept;
        }
    }

    state full_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination, hdr.udp.length) {
            (INNET_UDP_PORT, FULL_UDP_LENGTH): full_innet;
            (INNET_UDP_PORT, _): other_innet;
            default: accept;
        }
    }

    state bare_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination, hdr.udp.length) {
            (INNET_UDP_PORT, BARE_UDP_LENGTH): bare_innet;
            (INNET_UDP_PORT, _): other_innet;
            default: accept;
        }
    }

    state other_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            INNET_UDP_PORT: other_innet;
            default: accept;
        }
    }

    state full_innet {
        packet.extract(hdr.innet);
        transition select(hdr.innet.version, hdr.innet.kind, hdr.innet.operation) {
            (INNET_VERSION, KIND_CONTRIBUTION, OPERATION_SUM): full_contribution;
            (INNET_VERSION, KIND_CONTRIBUTION, OPERATION_MAX): full_contribution;
            (INNET_VERSION, KIND_RESULT, OPERATION_SUM): full_result;
            (INNET_VERSION, KIND_RESULT, OPERATION_MAX): full_result;
            default: accept;
        }
    }

    state full_contribution {
        transition select(IS_CARRIED(hdr.innet.flags)) {
            1: contribution;
            default: accept;
        }
    }

    // A result that begins a chunk also finishes it: as if its quorum was 1.
    state full_result {
        meta.quorum = 1;
        transition select(IS_CARRIED(hdr.innet.flags)) {
            1: result;
            default: accept;
        }
    }

    state bare_innet {
        packet.extract(hdr.innet);
        transition select(hdr.innet.version, hdr.innet.kind, hdr.innet.operation) {
            (INNET_VERSION, KIND_CONTRIBUTION, OPERATION_SUM): short_contribution;
            (INNET_VERSION, KIND_RESULT, OPERATION_SUM): short_result;
            (INNET_VERSION, KIND_QUERY, OPERATION_SUM): query;
            (INNET_VERSION, KIND_QUERY, OPERATION_MAX): query;
            (INNET_VERSION, KIND_PENDING, _): pending;
            (INNET_VERSION, KIND_STALE, _): stale;
            (INNET_VERSION, KIND_HELLO, 0): hello;
            (INNET_VERSION, KIND_CLEAR, 0): clear;
            default: accept;
        }
    }

    state short_contribution {
        transition select(IS_CARRIED(hdr.innet.flags)) {
            0: bare_contribution;
            default: accept;
        }
    }

    state short_result {
        meta.quorum = 1;
        transition select(IS_CARRIED(hdr.innet.flags)) {
            0: bare_result;
            default: accept;
        }
    }

    state other_innet {
        packet.extract(hdr.innet);
        transition accept;
    }

    #include "../shared/fragments/states.p4"
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t deparser) {
    apply {
        packet.emit(hdr);
    }
}

// A copy for who does not want the lanes gets none. The parser alone can drop so many bytes, and it has to
// look at one byte of the bitmap at a time.
#define FOR_EACH_COPY(M)                                                                 \
    M(0, 7, 0)    M(1, 7, 0)    M(2, 7, 0)    M(3, 7, 0)                                 \
    M(4, 7, 0)    M(5, 7, 0)    M(6, 7, 0)    M(7, 7, 0)                                 \
    M(8, 15, 8)   M(9, 15, 8)   M(10, 15, 8)  M(11, 15, 8)                               \
    M(12, 15, 8)  M(13, 15, 8)  M(14, 15, 8)  M(15, 15, 8)                               \
    M(16, 23, 16) M(17, 23, 16) M(18, 23, 16) M(19, 23, 16)                              \
    M(20, 23, 16) M(21, 23, 16) M(22, 23, 16) M(23, 23, 16)                              \
    M(24, 31, 24) M(25, 31, 24) M(26, 31, 24) M(27, 31, 24)                              \
    M(28, 31, 24) M(29, 31, 24) M(30, 31, 24) M(31, 31, 24)

#define COPY_ROW(n, high, low) n + 1: parse_copy_##n;
#define COPY_STATE(n, high, low)                                                         \
    state parse_copy_##n {                                                               \
        packet.extract(hdr.bridge);                                                      \
        transition select(hdr.bridge.purpose, hdr.bridge.wanted[high:low]) {             \
            (PURPOSE_COPY, 0 &&& 8w1 << (n - low)): parse_stripped;                      \
            (OWN_PACKET, _): parse_reply;                                                \
            default: accept;                                                             \
        }                                                                                \
    }

parser EgressParser(packet_in packet, out egress_headers_t hdr, out egress_metadata_t meta,
                    out egress_intrinsic_metadata_t standard) {
#if __TARGET_TOFINO__ == 1
    // Its parser reads no further than 160 bytes, so all copies keep the lanes.
    state start {
        packet.extract(standard);
        transition parse_bridge;
    }
#else
    // A worker's copy has the instance number of its bit, plus 1. Those of switches below keep the lanes.
    state start {
        packet.extract(standard);
        meta.stripped = 0;
        transition select(standard.egress_rid) {
            FOR_EACH_COPY(COPY_ROW)
            default: parse_bridge;
        }
    }

    FOR_EACH_COPY(COPY_STATE)

    // Of what is parsed, only headers are put together again: the lanes get lost.
    state parse_stripped {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.innet);
        packet.extract(hdr.rest);
        packet.advance(32 * LANES);
        meta.stripped = 1;
        transition accept;
    }
#endif

    state parse_bridge {
        packet.extract(hdr.bridge);
        transition select(hdr.bridge.purpose) {
            OWN_PACKET: parse_reply;
            default: accept;
        }
    }

    state parse_reply {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.innet);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout egress_headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t deparser) {
    Checksum() ipv4_checksum;

    apply {
        // Only a frame that the switch itself addressed is parsed so far, and needs a new checksum.
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        packet.emit(hdr);
    }
}

#endif
