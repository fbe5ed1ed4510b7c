// What ../shared leaves to the target: on v1model, how packets are counted and sent.

#ifndef INNET_TARGET_P4
#define INNET_TARGET_P4

#include <core.p4>
#include <v1model.p4>

// BMv2's and innet-switch's --cpu-port.
const bit<9> CPU_PORT = 510;

// How lanes combine, besides by the operations of ../shared/constants.p4.
const bit<4> OPERATION_WRAPPING_SUM = 3;  // modulo 2^32, for padded lanes

// A bitmap of contributors.
typedef bit<64> bitmap_t;
const bitmap_t EVERYBODY = 0xffffffffffffffff;

#define COUNTER(size, index_t, name) counter(size, CounterType.packets) name
#define COUNT(name, index) name.count((bit<32>) (index))

#define SEND(port) standard.egress_spec = port
#define SEND_COPIES(group) standard.mcast_grp = group
#define MARK_FLOODED meta.flooded = 1

#define CELL_HAS_LANES meta.carried
#define WANTED_BY_COPY(bits) meta.wanted = meta.wanted & bits;

// A packet passes once, and a cell's lanes are simply read.
#define BEFORE_READING_LANES hdr.lanes.setValid();
#define SECOND_PASS_ACTIONS
#define SECOND_PASS_ENTRIES

// Results that come before this switch's sum is complete: those below get all lanes. A result may begin
// a chunk, and may lack lanes that nobody below has asked for.
#define FOR_EVERYBODY meta.wanted = EVERYBODY;
#define ASK_FOR_LANES
#define BEGINNING_RESULTS                                                                \
            (FORM_RESULT,       AGE_NEWER,   _, _, _, true,  _, _): complete_early(FOLD_START); \
            (FORM_RESULT,       AGE_NEWER,   _, _, _, _,     _, _): complete_early(FOLD_NONE);
#define LACKING_RESULTS                                                                  \
            (FORM_WITHHELD,     AGE_CURRENT, _, 1, _, _,     _, _): complete(FOLD_NONE);

#endif
