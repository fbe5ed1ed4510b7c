// What the controls tell each other about the packet at hand.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "../shared/constants.p4"

struct metadata_t {
    bit<32> sender;     // who sent it, as it says: an IPv4 source, or the sender of an ARP
    bit<1>  spoofed;    // ... and that is this switch
    bit<32> target;     // whom it asks for: an IPv4 destination, or the target of an ARP
    bit<1>  mine;       // ... and that is this switch
    bit<48> my_mac;
    bit<1>  flooded;    // on its way to all ports
    bit<1>  above;      // it comes from a parent of this switch, to this switch's address there

    bit<3>  form;       // FORM_*
    bit<1>  corrupted;  // it is not as its sender sent it

    bit<1>  admitted;   // the table knows this worker, at this port, in this job and epoch
    bit<32> worker;     // its one bit in the bitmaps
    bit<8>  quorum;     // contributions that complete a chunk
    bit<16> group;      // multicast group of the job's workers
    bit<8>  job_index;  // which of the JOBS counters is the job's

    bit<1>  below;      // the sum of this slot goes up to a parent
    bit<9>  uplink;     // ... out of this port
    bit<48> uplink_mac;     // ... in this name
    bit<32> uplink_address;
    bit<8>  total;      // how many workers a result is of
    bit<32> elsewhere;  // bitmap: those who are not below this switch

    bit<32> cell;       // slot and copy: the index into every register
    bit<2>  age;        // AGE_*
    bit<32> arrived;    // who had contributed before this packet
    bit<32> repeated;   // the worker's own bit of it: not zero if it had contributed already
    bit<8>  missing;    // contributions that the chunk still lacked before this packet
    bit<2>  fold;       // FOLD_*
    bit<32> limit;      // the sign bit: a sum is at a limit of its 32 bits
    bit<3>  reply;      // REPLY_*
}

// What an innet packet is, if version, kind, operation and lengths go together.
const bit<3> FORM_NONE         = 0;
const bit<3> FORM_CONTRIBUTION = 1;
const bit<3> FORM_HELLO        = 2;
const bit<3> FORM_CLEAR        = 3;  // only the controller's are heard
const bit<3> FORM_RESULT       = 4;  // these three only from a parent
const bit<3> FORM_PENDING      = 5;
const bit<3> FORM_STALE        = 6;

// How the packet's sequence number compares with the one that its cell holds.
const bit<2> AGE_STALE   = 0;
const bit<2> AGE_CURRENT = 1;
const bit<2> AGE_NEWER   = 2;

// What happens between the packet's lanes and the cell's.
const bit<2> FOLD_NONE    = 0;
const bit<2> FOLD_START   = 1;  // the cell takes the packet's lanes
const bit<2> FOLD_COMBINE = 2;  // both become their sum, or their maximum
const bit<2> FOLD_READ    = 3;  // the packet takes the cell's lanes

// What goes back to the workers, or on to the parent.
const bit<3> REPLY_NONE    = 0;
const bit<3> REPLY_ALL     = 1;  // the result, to all who contribute to the job here
const bit<3> REPLY_ONE     = 2;  // the result, to this worker
const bit<3> REPLY_PENDING = 3;  // who has arrived so far, to this worker
const bit<3> REPLY_STALE   = 4;  // that the slot has gone on, to this worker
const bit<3> REPLY_UP      = 5;  // the sum of those below this switch, to the parent
const bit<3> REPLY_DOWN    = 6;  // what the parent says, as it is, to all who contribute here

#endif
