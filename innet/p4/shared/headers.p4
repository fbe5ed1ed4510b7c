// The headers on the wire. All fields are in network byte order; innet/wire/ is the hosts' copy of
// this file, and a test holds the two equal.

#ifndef INNET_HEADERS_P4
#define INNET_HEADERS_P4

#include "constants.p4"
#include "unroll.p4"

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header vlan_t {
    bit<16> tag;
    bit<16> ether_type;
}

header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8>  hardware_length;
    bit<8>  protocol_length;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_length;
    bit<6>  diffserv;
    bit<2>  ecn;
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

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

// 28 bytes behind the UDP header of every innet packet.
header innet_t {
    bit<8>  version;    // INNET_VERSION
    bit<4>  kind;       // KIND_*
    bit<4>  operation;  // OPERATION_*
    bit<16> count;      // how many workers are in it: 1 in a worker's contribution
    bit<16> job;        // given by the controller
    bit<16> term;       // changes whenever the job's workers or slots do
    bit<16> slot;       // index into the switch's slots
    bit<16> flags;      // FLAG_*
    bit<32> sequence;   // of the chunk within its slot, from 1 on; in a hello: the join's nonce
    bit<64> workers;    // bitmap: in a result, who is in it; in a pending, who has arrived
    bit<32> check;      // of all the above, the source address and port, and the lanes
}

// The chunk itself, in packets that have it: LANES signed 32-bit integers.
#define LANE_FIELD(n) bit<32> lane_##n;
header lanes_t {
    FOR_EACH_LANE(LANE_FIELD)
}

// Between the switch and its controller, in front of the Ethernet header on the CPU port.
@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;  // ignored where the frame is a KIND_CLEAR
    bit<7> padding;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> padding;
}

// What the checksum of an IPv4 header is of.
#define IPV4_FIELDS                                                                     \
    { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.diffserv, hdr.ipv4.ecn,        \
      hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,                   \
      hdr.ipv4.fragment_offset, hdr.ipv4.time_to_live, hdr.ipv4.protocol,               \
      hdr.ipv4.source, hdr.ipv4.destination }

#endif
