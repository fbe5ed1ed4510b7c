// The switch as an ordinary station and an ordinary bridge.

#ifndef INNET_FORWARDING_P4
#define INNET_FORWARDING_P4

#include "metadata.p4"

// Answers "who has the switch's address?", so that hosts need no static ARP entry.
control ArpResponder(inout headers_t hdr, in metadata_t meta,
                     in ingress_intrinsic_metadata_t standard,
                     inout ingress_intrinsic_metadata_for_tm_t traffic) {
    #include "../shared/fragments/arp_answer.p4"

    apply {
        if (meta.form == FORM_QUESTION) {
            answer();
        }
    }
}

// Everything that is not for the switch: to the port of its destination, or to all ports.
control Bridge(inout headers_t hdr, inout ingress_intrinsic_metadata_for_tm_t traffic) {
    #include "../shared/fragments/stations.p4"

    apply {
        stations.apply();
    }
}

#endif
