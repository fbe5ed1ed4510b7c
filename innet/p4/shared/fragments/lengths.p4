// What IPv4 and UDP say of the length, once it is known whether the packet has lanes.

    action lengthen() {
        hdr.ipv4.total_length = FULL_IPV4_LENGTH;
        hdr.udp.length = FULL_UDP_LENGTH;
    }

    action shorten() {
        hdr.ipv4.total_length = BARE_IPV4_LENGTH;
        hdr.udp.length = BARE_UDP_LENGTH;
    }
