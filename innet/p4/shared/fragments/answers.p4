// What a reply says. To whom it goes, and how, is the target's to know: in its actions result_to_all,
// result_to_one, reply_to_one, sum_to_parent and answer_to_all.

    // The frame turns around; copies for the other workers get their addresses in the egress.
    action turn_around(bit<4> kind) {
        bit<16> port = hdr.udp.source;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.my_mac;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = meta.sender;
        hdr.ipv4.time_to_live = 64;
        hdr.ipv4.ecn = ECN_CAPABLE;  // a mark has moved to the flags
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.destination = port;
        hdr.udp.checksum = 0;  // "none": IPv4 allows it
        hdr.innet.kind = kind;
        hdr.innet.check = 0;  // "none", where the target computes no other
    }

    action say_result() {
        turn_around(KIND_RESULT);
        hdr.innet.workers = (bit<64>) (meta.members | meta.worker);
        hdr.innet.count = meta.count;
        hdr.innet.flags = hdr.innet.flags | meta.flags;
    }

    action complete() {
        say_result();
        result_to_all();
    }

    action say_result_again() {
        turn_around(KIND_RESULT);
        hdr.innet.workers = (bit<64>) meta.members;
        hdr.innet.count = meta.count;
        hdr.innet.flags = meta.flags;
    }

    action answer() {
        say_result_again();
        result_to_one();
    }

    action remind() {
        turn_around(KIND_PENDING);
        hdr.innet.workers = (bit<64>) (meta.members | meta.elsewhere);  // of those nothing is known here
        reply_to_one();
    }

    action reject() {
        turn_around(KIND_STALE);
        hdr.innet.workers = 0;
        reply_to_one();
    }

    // A packet goes on in this switch's name, to the address that the contribution was sent to: a parent
    // has the same.
    action rise() {
        hdr.ethernet.destination = meta.my_mac;
        hdr.ethernet.source = meta.uplink_mac;
        hdr.ipv4.source = meta.uplink_address;
        hdr.ipv4.time_to_live = 64;
        hdr.ipv4.ecn = ECN_CAPABLE;
        hdr.udp.source = hdr.udp.destination;
        hdr.udp.checksum = 0;
        hdr.innet.check = 0;
    }

    action say_sum() {
        rise();
        hdr.innet.count = meta.count;
        hdr.innet.flags = hdr.innet.flags | meta.flags;
    }

    action go_up() {
        say_sum();
        sum_to_parent();
    }

    // Who has sent it, and what it says, is right already; the copies get their addresses.
    action say_what_the_parent_says() {
        hdr.ipv4.time_to_live = 64;
        hdr.ipv4.ecn = ECN_CAPABLE;
        hdr.innet.check = 0;
    }

    action go_down() {
        say_what_the_parent_says();
        answer_to_all();
    }
