// The switch as an ordinary station and an ordinary bridge.

#ifndef INNET_FORWARDING_P4
#define INNET_FORWARDING_P4

#include "metadata.p4"
#include "../shared/headers.p4"

// Is the packet for the switch itself?
control Service(inout metadata_t meta) {
    action serve(bit<48> mac) {
        meta.mine = 1;
        meta.my_mac = mac;
    }

    // The address under which workers reach this switch, one entry.
    @name("service")
    table service {
        key = { meta.target: exact @name("address"); }
        actions = { serve; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    apply {
        service.apply();
    }
}

// Is it what a parent of this switch answers? All switches of a tree serve one address, so this comes
// before anybody is accused of sending in the switch's name.
control Above(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    action descend() {
        meta.above = 1;
    }

    // The links to parents: at which port, from whom, and under which address this switch is known there.
    @name("uplinks")
    table uplinks {
        key = {
            standard.ingress_port: exact @name("port");
            hdr.ipv4.source: exact @name("parent");
            hdr.ipv4.destination: exact @name("address");
        }
        actions = { descend; NoAction; }
        const default_action = NoAction;
        size = 16;
    }

    apply {
        if (hdr.innet.isValid()) {
            uplinks.apply();
        }
    }
}

// Does somebody else send in the switch's name? A worker must be able to trust what comes from there.
control Spoofing(inout metadata_t meta, in standard_metadata_t standard) {
    // By ingress port.
    @name("spoofed")
    counter(512, CounterType.packets) spoofed;

    action expose() {
        meta.spoofed = 1;
        spoofed.count((bit<32>) standard.ingress_port);
    }

    // The addresses of the table `service`, again: P4 lets one packet look into a table once.
    @name("own_addresses")
    table own_addresses {
        key = { meta.sender: exact @name("address"); }
        actions = { expose; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    apply {
        own_addresses.apply();
    }
}

// Answers "who has the switch's address?", so that hosts need no static ARP entry.
control ArpResponder(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    apply {
        if (hdr.arp.operation == ARP_REQUEST && hdr.arp.hardware_type == ARP_ETHERNET
            && hdr.arp.protocol_type == ETHERTYPE_IPV4) {
            bit<32> asked = hdr.arp.target_ip;
            hdr.arp.operation = ARP_REPLY;
            hdr.arp.target_mac = hdr.arp.sender_mac;
            hdr.arp.target_ip = hdr.arp.sender_ip;
            hdr.arp.sender_mac = meta.my_mac;
            hdr.arp.sender_ip = asked;
            hdr.ethernet.destination = hdr.ethernet.source;
            hdr.ethernet.source = meta.my_mac;
            standard.egress_spec = standard.ingress_port;
        } else {
            mark_to_drop(standard);
        }
    }
}

// Everything that is not for the switch: to the port of its destination, or to all ports.
control Bridge(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    action flood() {
        standard.mcast_grp = FLOOD_GROUP;
        meta.flooded = 1;
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
