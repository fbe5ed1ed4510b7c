// Whom each copy of a result is for. A copy's instance number in the job's multicast group is its
// worker's bit index plus 1; those from 65 on are of switches below. The copy has the result's lanes if
// one of its `bits` is among those who want them.

    action address_to(bit<48> mac, bit<32> address, bit<16> udp_port, bitmap_t bits) {
        hdr.ethernet.destination = mac;
        hdr.ipv4.destination = address;
        hdr.udp.destination = udp_port;
        WANTED_BY_COPY(bits)
    }

    @name("replicas")
    table replicas {
        key = {
            hdr.innet.job: exact @name("job");
            standard.egress_rid: exact @name("instance");
        }
        actions = { address_to; NoAction; }
        const default_action = NoAction;
        size = 4096;
    }
