// What accompanies a packet: its headers, and what the controls tell each other about it.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "target.p4"
#include "../shared/headers.p4"
#include "../shared/outcomes.p4"

// In front of every frame on its way from the ingress to the egress, and through the ingress again.
header bridge_t {
    bit<8>  purpose;  // PURPOSE_*
    bit<7>  padding;
    bit<9>  port;     // where the frame came in; PURPOSE_AGAIN: where it goes in the end
    bit<16> group;    // PURPOSE_AGAIN_ALL: multicast group of the job's workers
#if __TARGET_TOFINO__ == 2
    bit<32> wanted;   // PURPOSE_COPY: who wants the lanes
#endif
}

struct headers_t {
    bridge_t     bridge;
    packet_out_t packet_out;
    packet_in_t  packet_in;
    ethernet_t   ethernet;
    arp_t        arp;
    ipv4_t       ipv4;
    udp_t        udp;
    innet_t      innet;
    lanes_t      lanes;
}

struct metadata_t {
    #include "../shared/fragments/fields.p4"

    bit<16> cell;            // slot and copy: the index into every register
    bit<16> missing;         // contributions that the chunk still lacked before this packet
}

// The innet header as far as the egress needs it; the rest passes as payload, if the lanes do.
header front_t {
    bit<8>  version;
    bit<4>  kind;
    bit<4>  operation;
    bit<16> count;
    bit<16> job;
}

#if __TARGET_TOFINO__ == 2
header rest_t {
    bit<16> term;
    bit<16> slot;
    bit<16> flags;
    bit<32> sequence;
    bit<64> workers;
    bit<32> check;
}
#endif

struct egress_headers_t {
    bridge_t   bridge;
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    front_t    innet;
#if __TARGET_TOFINO__ == 2
    rest_t     rest;
#endif
}

struct egress_metadata_t {
    bit<9> turn;      // 0 on the copy of a flooded frame that goes where it came from
#if __TARGET_TOFINO__ == 2
    bit<1> stripped;  // the copy has lost its lanes
#endif
}

// What ../shared/outcomes.p4 leaves to the targets: ARP requests, and a second pass.
const bit<4> FORM_AGAIN        = 4;  // a result, or a sum, on its second way through the ingress
const bit<4> FORM_QUESTION     = 5;  // none of innet's: an ARP request
const bit<4> FOLD_FINISH       = 4;  // the packet takes those lanes that the first pass could not return
const bit<4> OUTCOME_DELIVERED = 6;  // a result, or a sum, behind its second pass
const bit<4> OUTCOME_OVERTAKEN = 7;  // the slot has gone on between its two passes

// What the egress does with a frame.
const bit<8> PURPOSE_FORWARD   = 0;  // nothing
const bit<8> PURPOSE_FLOOD     = 1;  // not back to where it came from
const bit<8> PURPOSE_REPLY     = 2;  // a packet of the switch's own: new checksum
const bit<8> PURPOSE_COPY      = 3;  // ... one of several, each to another worker's address
const bit<8> PURPOSE_AGAIN     = 4;  // back into the ingress, then PURPOSE_REPLY
const bit<8> PURPOSE_AGAIN_ALL = 5;  // back into the ingress, then PURPOSE_COPY
const bit<8> PURPOSE_BARE_COPY = 6;  // PURPOSE_COPY, of a packet without lanes

// The bit that those of the switch's own packets have in common that leave it.
#define OWN_PACKET 2 &&& 2

#endif
