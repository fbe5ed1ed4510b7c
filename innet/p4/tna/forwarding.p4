// The switch as an ordinary station and an ordinary bridge.

#ifndef INNET_FORWARDING_P4
#define INNET_FORWARDING_P4

#include "metadata.p4"

// Answers "who has the switch's address?", so that hosts need no static ARP entry.
control ArpResponder(inout ingress_headers_t hdr, in ingress_metadata_t meta,
                     in ingress_intrinsic_metadata_t standard,
                     inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action answer() {
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.my_mac;
        hdr.arp.sender_ip = meta.target;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.my_mac;
        traffic.ucast_egress_port = standard.ingress_port;
    }

    apply {
        if (meta.form == FORM_QUESTION) {
            answer();
        }
    }
}

// Everything that is not for the switch: to the port of its destination, or to all ports.
control Bridge(inout ingress_headers_t hdr, inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action forward(bit<9> port) {
        traffic.ucast_egress_port = port;
    }

    action flood() {
        traffic.mcast_grp_a = FLOOD_GROUP;
        hdr.bridge.purpose = PURPOSE_FLOOD;
    }

    // Where known stations are attached.
    @name("bridge")
    table stations {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { forward; flood; }
        const default_action = flood;
        size = 1024;
    }

    apply {
        stations.apply();
    }
}

#endif
