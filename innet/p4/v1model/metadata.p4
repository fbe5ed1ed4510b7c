// What the controls tell each other about the packet at hand.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "target.p4"
#include "../shared/headers.p4"
#include "fragments/outcomes.p4"

struct metadata_t {
    #include "fragments/fields.p4"

    bit<32> cell;            // slot and copy: the index into every register
    bit<8>  missing;         // contributions that the chunk still lacked before this packet
    bit<32> limit;           // the sign bit: a sum is at a limit of its 32 bits

    bit<1>  flooded;         // on its way to all ports
    bit<1>  addressed;       // the switch itself addressed it: new check, new checksum
    bit<1>  copied;          // ... and each copy goes to another address
}

#endif
