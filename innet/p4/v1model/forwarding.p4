// The switch as an ordinary station and an ordinary bridge.

#ifndef INNET_FORWARDING_P4
#define INNET_FORWARDING_P4

#include "metadata.p4"

// Answers "who has the switch's address?", so that hosts need no static ARP entry.
control ArpResponder(inout headers_t hdr, in metadata_t meta,
                     inout standard_metadata_t standard) {
    #include "fragments/arp_answer.p4"

    apply {
        if (hdr.arp.operation == ARP_REQUEST && hdr.arp.hardware_type == ARP_ETHERNET
            && hdr.arp.protocol_type == ETHERTYPE_IPV4) {
            answer();
        } else {
            mark_to_drop(standard);
        }
    }
}

// Everything that is not for the switch: to the port of its destination, or to all ports.
control Bridge(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    #include "fragments/stations.p4"

    apply {
        stations.apply();
    }
}

#endif
