// What accompanies a packet: its headers, and what the controls tell each other about it.

#ifndef INNET_METADATA_P4
#define INNET_METADATA_P4

#include "target.p4"
#include "../shared/headers.p4"
#include "../shared/outcomes.p4"

struct headers_t {
    packet_out_t packet_out;
    packet_in_t  packet_in;
    ethernet_t   ethernet;
    vlan_t[2]    vlans;
    arp_t        arp;
    ipv4_t       ipv4;
    udp_t        udp;
    innet_t      innet;
    lanes_t      lanes;
}

struct metadata_t {
    #include "../shared/fragments/fields.p4"

    bit<32> cell;            // slot and copy: the index into every register
    bit<8>  missing;         // contributions that the chunk still lacked before this packet
    bit<2>  part;            // PART_*
    bit<32> limit;           // the sign bit: a sum is at a limit of its 32 bits

    bit<1>  flooded;         // on its way to all ports
    bit<1>  addressed;       // the switch itself addressed it: new check, new checksum
    bit<1>  copied;          // ... and each copy goes to another address
    bit<32> bare_check;      // the check of a copy without lanes
}

// What a packet is to the sum in its cell.
const bit<2> PART_NONE  = 0;
const bit<2> PART_FIRST = 1;  // its beginning; or the parent's result, which takes its place
const bit<2> PART_MORE  = 2;  // one more contribution

#endif
