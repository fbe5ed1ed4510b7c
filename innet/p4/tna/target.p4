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

// The register `flags` tells of a result's lanes. So a switch below asks for them, even if nobody below
// it does, and takes no result that lacks them.
#define ASK_FOR_LANES hdr.innet.flags = hdr.innet.flags | FLAG_WANTED;
#define LACKING_RESULTS

// On Tofino 1, `trees` and `sequence` share a stage. So it is not known yet whether a result may begin a
// chunk, and none does. Its copies keep the lanes in any case.
#if __TARGET_TOFINO__ == 1
#define FOR_EVERYBODY
#define BEGINNING_RESULTS
#define BEGINNING_RESULTS_RESTART
#else
#define FOR_EVERYBODY hdr.bridge.wanted = 0xffffffff;
#define BEGINNING_RESULTS                                                                \
            (FORM_RESULT,       AGE_NEWER,   _, _, _, true,  _, _): complete_early(FOLD_START); \
            (FORM_RESULT,       AGE_NEWER,   _, _, _, _,     _, _): complete_early(FOLD_NONE);
#define BEGINNING_RESULTS_RESTART                                                        \
            (FORM_RESULT,       AGE_NEWER,   _, _, 1, 0): restart();
#endif

#endif
