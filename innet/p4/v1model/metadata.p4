// What the controls tell each other about the packet at hand.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "../shared/constants.p4"

struct metadata_t {
    bit<32> target;     // whom the packet asks for: an IPv4 destination, or the target of an ARP
    bit<1>  mine;       // ... and that is this switch
    bit<48> my_mac;
    bit<1>  clear;      // a request to clear a cell; only the controller's are heard
    bit<1>  flooded;    // on its way to all ports

    bit<1>  admitted;   // the table knows this worker, at this port, in this job and epoch
    bit<32> worker;     // its one bit in the bitmaps
    bit<8>  quorum;     // contributions that complete a chunk
    bit<16> group;      // multicast group of the job's workers
    bit<8>  job_index;  // which of the JOBS counters is the job's

    bit<32> cell;       // slot and copy: the index into every register
    bit<2>  age;        // AGE_*
    bit<32> arrived;    // who had contributed before this packet
    bit<32> repeated;   // the worker's own bit of it: not zero if it had contributed already
    bit<8>  missing;    // contributions that the chunk still lacked before this packet
    bit<2>  fold;       // FOLD_*
    bit<2>  reply;      // REPLY_*
}

// How the packet's sequence number compares with the one that its cell holds.
const bit<2> AGE_STALE   = 0;
const bit<2> AGE_CURRENT = 1;
const bit<2> AGE_NEWER   = 2;

// What happens between the packet's lanes and the cell's.
const bit<2> FOLD_NONE    = 0;
const bit<2> FOLD_START   = 1;  // the cell takes the packet's lanes
const bit<2> FOLD_COMBINE = 2;  // both become their sum, or their maximum
const bit<2> FOLD_READ    = 3;  // the packet takes the cell's lanes

// What goes back to the workers.
const bit<2> REPLY_NONE    = 0;
const bit<2> REPLY_ALL     = 1;  // the result, to every worker of the job
const bit<2> REPLY_ONE     = 2;  // the result, to this worker
const bit<2> REPLY_PENDING = 3;  // who has arrived so far, to this worker

#endif
