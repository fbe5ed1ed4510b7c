// What the controls tell each other about the packet at hand.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "chip.p4"
#include "../shared/headers.p4"

// In front of every frame on its way from the ingress to the egress, and through the ingress again.
header bridge_t {
    bit<8>  purpose;  // PURPOSE_*
    bit<7>  padding;
    bit<9>  port;     // where the frame came in; PURPOSE_AGAIN: where it goes in the end
    bit<16> group;    // PURPOSE_AGAIN_ALL: multicast group of the job's workers
}

struct ingress_headers_t {
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

struct ingress_metadata_t {
    bit<32> sender;          // who sent it, as it says: an IPv4 source, or the sender of an ARP
    bit<32> target;          // whom it asks for: an IPv4 destination, or the target of an ARP
    bit<1>  mine;            // ... and that is this switch
    bit<48> my_mac;
    bit<1>  above;           // it comes from a parent of this switch, to this switch's address there
    bit<4>  form;            // FORM_*
    bool    damaged;         // the IPv4 header's checksum does not fit
    bit<1>  refused;         // an innet packet for this switch that nothing allows

    bit<1>  admitted;        // a contribution of a worker that the table knows
    bit<32> worker;          // its bits in the bitmaps; of a parent's answer, who is in it
    bit<8>  quorum;          // contributions that complete a chunk
    bit<16> group;           // multicast group of the job's workers
    bit<8>  job_index;       // which of the JOBS counters is the job's

    bit<1>  below;           // the sum of this slot goes up to a parent
    bit<9>  uplink;          // ... out of this port
    bit<9>  astray;          // 0 if this packet has come in there
    bit<48> uplink_mac;      // ... in this name
    bit<32> uplink_address;
    bit<8>  total;           // how many workers a result is of
    bit<32> elsewhere;       // bitmap: those who are not below this switch

    bit<16> cell;            // slot and copy: the index into every register
    bit<4>  age;             // AGE_*
    bit<32> arrived;         // who had contributed before this packet
    bit<1>  repeated;        // the worker was among them
    bit<16> missing;         // contributions that the chunk still lacked before this packet
    bit<32> members;         // who was in the sum before this packet
    bit<16> flags;           // what their contributions said of themselves
    bit<4>  fold;            // FOLD_*
    bit<4>  outcome;         // OUTCOME_*
}

// The innet header as far as the egress needs it; the rest passes as payload.
header front_t {
    bit<8>  version;
    bit<8>  kind;
    bit<8>  operation;
    bit<8>  count;
    bit<16> job;
}

struct egress_headers_t {
    bridge_t   bridge;
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    front_t    innet;
}

struct egress_metadata_t {
    bit<9> turn;  // 0 on the copy of a flooded frame that goes where it came from
}

// What an innet packet is, if version, kind, operation and lengths go together.
const bit<4> FORM_NONE         = 0;
const bit<4> FORM_CONTRIBUTION = 1;
const bit<4> FORM_HELLO        = 2;
const bit<4> FORM_CLEAR        = 3;  // only the controller's are heard
const bit<4> FORM_AGAIN        = 4;  // a result, or a sum, on its second way through the ingress
const bit<4> FORM_QUESTION     = 5;  // none of innet's: an ARP request
const bit<4> FORM_RESULT       = 8;  // these three only from a parent
const bit<4> FORM_PENDING      = 9;
const bit<4> FORM_STALE        = 10;

// The bit that a parent's answers have in common.
#define IS_ANSWER(form) form[3:3] == 1

// How the packet's sequence number compares with the one that its cell holds: a stateful ALU's
// predicate, one-hot.
const bit<4> AGE_NONE    = 0;  // was not compared
const bit<4> AGE_STALE   = 1;
const bit<4> AGE_NEWER   = 2;
const bit<4> AGE_CURRENT = 4;

// What happens between the packet's lanes and the cell's.
const bit<4> FOLD_NONE    = 0;
const bit<4> FOLD_START   = 1;  // the cell takes the packet's lanes
const bit<4> FOLD_COMBINE = 2;  // both become their sum, or their maximum
const bit<4> FOLD_READ    = 3;  // the packet takes the cell's lanes
const bit<4> FOLD_FINISH  = 4;  // ... those that the first pass could not return

// What becomes of a contribution, or of a parent's answer.
const bit<4> OUTCOME_NONE      = 0;
const bit<4> OUTCOME_WAITING   = 1;
const bit<4> OUTCOME_COMPLETED = 2;  // the result, to every worker of the job
const bit<4> OUTCOME_ANSWERED  = 3;  // the result, to this worker
const bit<4> OUTCOME_PENDING   = 4;  // who has arrived so far, to this worker
const bit<4> OUTCOME_STALE     = 5;  // that the slot has gone on, to this worker
const bit<4> OUTCOME_DELIVERED = 6;  // a result, or a sum, behind its second pass
const bit<4> OUTCOME_OVERTAKEN = 7;  // the slot has gone on between its two passes
const bit<4> OUTCOME_RAISED    = 8;  // the sum of those below this switch, to the parent
const bit<4> OUTCOME_IGNORED   = 9;  // a parent's answer that nobody waits for

// What the egress does with a frame.
const bit<8> PURPOSE_FORWARD   = 0;  // nothing
const bit<8> PURPOSE_FLOOD     = 1;  // not back to where it came from
const bit<8> PURPOSE_REPLY     = 2;  // a packet of the switch's own: new checksum
const bit<8> PURPOSE_COPY      = 3;  // ... one of several, each to another worker's address
const bit<8> PURPOSE_AGAIN     = 4;  // back into the ingress, then PURPOSE_REPLY
const bit<8> PURPOSE_AGAIN_ALL = 5;  // back into the ingress, then PURPOSE_COPY

#endif
