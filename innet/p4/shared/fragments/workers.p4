// Who may contribute. A worker is a (port, IP address, UDP port). What it may touch is one term of one
// job and an aligned power-of-two range of slots, which is why the slot matches by prefix.

    action admit(bitmap_t worker, bit<8> quorum, bit<16> group, bit<8> job_index) {
        meta.admitted = 1;
        meta.worker = worker;
        meta.quorum = quorum;
        meta.group = group;
        meta.job_index = job_index;
    }

    action refuse() {
        meta.refused = 1;
    }

    @name("workers")
    table workers {
        key = {
            standard.ingress_port: exact @name("port");
            hdr.ipv4.source: exact @name("address");
            hdr.udp.source: exact @name("udp_port");
            hdr.innet.job: exact @name("job");
            hdr.innet.term: exact @name("term");
            hdr.innet.slot: lpm @name("slot");
        }
        actions = { admit; refuse; }
        const default_action = refuse;
        size = WORKERS;
    }
