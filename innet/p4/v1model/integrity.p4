// Is a packet what its sender sent? The check says so from one end to the other, whatever cables,
// memories and software lie between.
//
// It is a multilinear hash (Lemire and Kaser, "Strongly universal string hashing is fast", The
// Computer Journal 57(11), 2014): the upper half of W(0) + W(1) word(1) + W(2) word(2) + ... modulo
// 2^64. The words are the source address, the source port, the innet header in front of the check,
// and the lanes. innet/wire/check.py is the hosts' copy of this file, and a test holds the two equal.
//
// All of it stands here, so that a target can leave it out: Tofino cannot multiply, and has the
// Ethernet MAC's frame check sequence instead, which does the same job from hop to hop.

#ifndef INNET_INTEGRITY_P4
#define INNET_INTEGRITY_P4

#include "metadata.p4"

// W(k) is the k-th output of splitmix64 (Steele, Lea and Flood, OOPSLA 2014) with the seed "innet".
// The compiler folds it to a constant.
#define MIXED(z, shift) ((z) ^ ((z) >> shift))
#define WEIGHT(k)                                                                        \
    MIXED(MIXED(MIXED(64w0x696e6e6574 + (k) * 64w0x9E3779B97F4A7C15, 30)                 \
                * 64w0xBF58476D1CE4E5B9, 27) * 64w0x94D049BB133111EB, 31)

#define LANE_WEIGHT(n) const bit<64> WEIGHT_##n = WEIGHT(64w9 + 64w0x##n);
FOR_EACH_LANE(LANE_WEIGHT)

#define ADD_WORD(k, word) sum = sum + (bit<64>) (word) * WEIGHT(64w##k);
#define ADD_LANE(n) sum = sum + (bit<64>) hdr.lanes.lane_##n * WEIGHT_##n;

// `bare` is the check of the header alone.
control Check(in headers_t hdr, out bit<32> check, out bit<32> bare) {
    bit<64> sum;

    action add_header() {
        ADD_WORD(1, hdr.ipv4.source)
        ADD_WORD(2, hdr.udp.source)
        ADD_WORD(3, hdr.innet.version ++ hdr.innet.kind ++ hdr.innet.operation ++ hdr.innet.count)
        ADD_WORD(4, hdr.innet.job ++ hdr.innet.term)
        ADD_WORD(5, hdr.innet.slot ++ hdr.innet.flags)
        ADD_WORD(6, hdr.innet.sequence)
        ADD_WORD(7, hdr.innet.workers[63:32])
        ADD_WORD(8, hdr.innet.workers[31:0])
    }

    action add_lanes() {
        FOR_EACH_LANE(ADD_LANE)
    }

    apply {
        sum = WEIGHT(64w0);
        add_header();
        bare = sum[63:32];
        if (hdr.lanes.isValid()) {
            add_lanes();
        }
        check = sum[63:32];
    }
}

// Of what comes in.
control CheckVerification(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    // By ingress port: innet packets for this switch whose check, or whose IPv4 header's checksum, does
    // not fit. Without a form there is no telling what the check is of.
    @name("corrupted")
    COUNTER(512, bit<9>, corrupted);

    Check() check;

    apply {
        bit<32> expected = hdr.innet.check;
        if (meta.form != FORM_NONE) {
            bit<32> bare;
            check.apply(hdr, expected, bare);
        }
        if (expected != hdr.innet.check || standard.checksum_error == 1) {
            meta.corrupted = true;
            COUNT(corrupted, standard.ingress_port);
        }
    }
}

// Of what the switch answers, once for all copies: but for the lanes, they differ in what the check is
// not of.
control CheckUpdate(inout headers_t hdr, inout metadata_t meta) {
    Check() check;

    apply {
        bit<32> value;
        check.apply(hdr, value, meta.bare_check);
        hdr.innet.check = value;
    }
}

#endif
