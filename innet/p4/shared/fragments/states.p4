// States of the parser: those that extract the same, and what an innet packet is.

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_arp {
        packet.extract(hdr.arp);
        meta.sender = hdr.arp.sender_ip;
        meta.target = hdr.arp.target_ip;
        transition accept;
    }

    state contribution {
        meta.form = FORM_CONTRIBUTION;
        transition parse_lanes;
    }

    state bare_contribution {
        meta.form = FORM_CONTRIBUTION;
        transition accept;
    }

    state result {
        meta.form = FORM_RESULT;
        transition parse_lanes;
    }

    state bare_result {
        meta.form = FORM_RESULT;
        transition accept;
    }

    state pending {
        meta.form = FORM_PENDING;
        transition accept;
    }

    state stale {
        meta.form = FORM_STALE;
        transition accept;
    }

    state query {
        meta.form = FORM_QUERY;
        transition accept;
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }

    state hello {
        meta.form = FORM_HELLO;
        transition accept;
    }

    state clear {
        meta.form = FORM_CLEAR;
        transition accept;
    }
