// Every number that the data plane and its users agree on, named once.
//
// LANES, SLOTS and WORKERS are compile-time parameters (-DLANES=256 -DSLOTS=1024): lanes are the 32-bit
// integers that one packet carries, slots the aggregation slots of the switch, workers the entries of
// the table that admits them.

#ifndef INNET_CONSTANTS_P4
#define INNET_CONSTANTS_P4

#ifndef LANES
#define LANES 64
#endif
#ifndef SLOTS
#define SLOTS 8192
#endif
#ifndef WORKERS
#define WORKERS 4096
#endif

// Every slot has two copies, picked by the parity of the sequence number: while one collects the
// contributions to a chunk, the other still holds the result before it for workers that lost it.
#define CELLS (2 * SLOTS)

// Jobs that can be counted apart at one time.
#define JOBS 256

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP  = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_QINQ = 0x88a8;
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> ARP_ETHERNET   = 1;
const bit<16> ARP_REQUEST    = 1;
const bit<16> ARP_REPLY      = 2;

// The UDP port on which a switch takes contributions, and the version of the format behind it.
const bit<16> INNET_UDP_PORT = 19790;
const bit<8>  INNET_VERSION  = 4;

// What IPv4 and UDP say of an innet packet's length, without lanes and with them.
const bit<16> BARE_UDP_LENGTH  = 8 + 28;
const bit<16> BARE_IPV4_LENGTH = 20 + BARE_UDP_LENGTH;
const bit<16> FULL_UDP_LENGTH  = BARE_UDP_LENGTH + 4 * LANES;
const bit<16> FULL_IPV4_LENGTH = 20 + FULL_UDP_LENGTH;

// What an innet packet is.
const bit<4> KIND_CONTRIBUTION = 1;  // worker -> switch: one chunk of a worker's vector
const bit<4> KIND_RESULT       = 2;  // switch -> worker: the chunk's sum over the workers
const bit<4> KIND_PENDING      = 3;  // switch -> worker: had that already, still waiting for others
const bit<4> KIND_HELLO        = 4;  // worker -> controller: where am I attached?
const bit<4> KIND_CLEAR        = 5;  // controller -> switch: forget what this cell holds
const bit<4> KIND_STALE        = 6;  // switch -> worker: the slot has gone on without this one
const bit<4> KIND_QUERY        = 7;  // worker -> switch: has the chunk a result?

// How lanes combine.
const bit<4> OPERATION_SUM = 1;      // signed, saturating
const bit<4> OPERATION_MAX = 2;      // signed; all contributions have lanes

// What a contribution says of itself; in a result, what any of its contributions said.
const bit<16> FLAG_OVERFLOW   = 1;   // lanes may overflow, or have overflowed
const bit<16> FLAG_NOT_FINITE = 2;   // a NaN or an infinity that the scale does not tell
const bit<16> FLAG_MARKED     = 4;   // a queue on the way was long
const bit<16> FLAG_CARRIED    = 8;   // it has lanes; without them it adds nothing
const bit<16> FLAG_WANTED     = 16;  // its sender wants the result's lanes

#define IS_CARRIED(flags) flags[3:3]
#define IS_WANTED(flags) flags[4:4]

// Explicit congestion notification in IPv4 (RFC 3168).
const bit<2> ECN_NOT_CAPABLE = 0;
const bit<2> ECN_CAPABLE     = 2;
const bit<2> ECN_CONGESTED   = 3;

// The multicast group that reaches every port: broadcasts and unknown destinations. Group ids from
// 2 on belong to jobs.
const bit<16> FLOOD_GROUP = 1;

#endif
