// Turns the question for this switch's address into its answer.

    action answer() {
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.my_mac;
        hdr.arp.sender_ip = meta.target;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.my_mac;
        SEND(standard.ingress_port);
    }
