// A packet that finds a long queue at its port is marked, if its sender takes part (RFC 3168).

#ifndef INNET_MARKING_P4
#define INNET_MARKING_P4

#include "metadata.p4"

// The packets at a port from which on its queue is long. The rule for DCTCP is a seventh of what is in
// flight (Alizadeh et al., SIGCOMM 2010): with 256 lanes, at 10 Gbit/s and a round trip of 400 us.
#ifndef MARKING_DEPTH
#define MARKING_DEPTH 64
#endif

control Marking(inout headers_t hdr, in standard_metadata_t standard) {
    // The checksum changes as RFC 1624 says, so that a wrong one stays wrong: others' packets pass here.
    action mark() {
        bit<16> added = (bit<16>) (ECN_CONGESTED - hdr.ipv4.ecn);
        hdr.ipv4.checksum = hdr.ipv4.checksum - added - (hdr.ipv4.checksum < added ? 16w1 : 16w0);
        hdr.ipv4.ecn = ECN_CONGESTED;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NOT_CAPABLE
            && standard.enq_qdepth >= MARKING_DEPTH) {
            mark();
        }
    }
}

#endif
