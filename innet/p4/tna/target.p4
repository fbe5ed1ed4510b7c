// What ../shared leaves to the target, and what the two chips differ in: Tofino 1 and Tofino 2.
//
// A stateful ALU of Tofino 1 returns one word per packet, of Tofino 2 up to four. Two lanes share a
// stateful ALU, so on Tofino 1 a packet that reads lanes passes the pipeline twice.

#ifndef INNET_TARGET_P4
#define INNET_TARGET_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 1
#include <tna.p4>
#else
#include <t2na.p4>
#endif

// The port of the switch's CPU: PCIe, as Stratum and the SDE number it on switches of two pipes.
#ifndef CPU_PORT
#if __TARGET_TOFINO__ == 1
#define CPU_PORT 192
#else
#define CPU_PORT 0
#endif
#endif

#if __TARGET_TOFINO__ == 1
// A port's number begins with its pipe's. In every pipe, one port leads back into the ingress.
#define PIPE(n) (9w##n << 7) &&& 0x180
#define RECIRCULATION_PORT(n) (9w##n << 7) + 68
#endif

// A queue is long from 2 to the power of this on, in cells of the packet buffer: 512 of 80 bytes on
// Tofino 1, 256 of 176 bytes on Tofino 2.
#if __TARGET_TOFINO__ == 1
#define MARKING_BITS 9
#else
#define MARKING_BITS 8
#endif

// A bitmap of contributors: a pipe has 16 ports of 100 Gbit/s. On the wire, the upper word is 0.
typedef bit<32> bitmap_t;

#define COUNTER(size, index_t, name) Counter<bit<32>, index_t>(size, CounterType_t.PACKETS) name
#define COUNT(name, index) name.count(index)

#define SEND(port) traffic.ucast_egress_port = port
#define SEND_COPIES(group) traffic.mcast_grp_a = group
#define MARK_FLOODED hdr.bridge.purpose = PURPOSE_FLOOD

// The register `flags` tells, and the parser of the egress knows which copies want the lanes.
#define CELL_HAS_LANES IS_CARRIED(meta.flags)
#define WANTED_BY_COPY(bits)

// On Tofino 1, to read a lane is to add zeros.
#if __TARGET_TOFINO__ == 1
#define ZERO_LANE(n) hdr.lanes.lane_##n = 0;
#define BEFORE_READING_LANES FOR_EACH_LANE(ZERO_LANE) hdr.lanes.setValid();
#else
#define BEFORE_READING_LANES hdr.lanes.setValid();
#endif

// What comes back for a second pass has a form of its own in the truth table.
#define SECOND_PASS_ACTIONS deliver; abandon;
#define SECOND_PASS_ENTRIES                                                              \
            (FORM_AGAIN,        AGE_CURRENT, _, _, _, _,     _, _): deliver();           \
            (FORM_AGAIN,        _,           _, _, _, _,     _, _): abandon();

// A quorum in a tree would take another stage.
#define DECISIONS 32
#define QUORUM_ACTIONS
#define QUORUM_ENTRIES
#define QUORUM_ACTIONS_BELOW
#define QUORUM_ENTRIES_BELOW

#endif
