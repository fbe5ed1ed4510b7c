// The place of this switch in a job's tree. Without an entry, their sums go no further.

    // The sum of these slots goes up: where, and in which name.
    action below(bit<9> port, bit<48> mac, bit<32> address, bitmap_t elsewhere, bit<16> group,
                 bit<8> job_index) {
        meta.below = 1;
        meta.uplink = port;
        meta.astray = standard.ingress_port ^ port;
        meta.uplink_mac = mac;
        meta.uplink_address = address;
        meta.elsewhere = elsewhere;
        meta.group = group;
        meta.job_index = job_index;
    }

    @name("trees")
    table trees {
        key = {
            hdr.innet.job: exact @name("job");
            hdr.innet.term: exact @name("term");
            hdr.innet.slot: lpm @name("slot");
        }
        actions = { below; NoAction; }
        const default_action = NoAction;
        size = 1024;
    }
