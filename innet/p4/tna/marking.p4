// A packet that finds a long queue at its port is marked, if its sender takes part (RFC 3168).
//
// The egress looks into the switch's own packets only, and their receivers take part. For others there
// is the marking of the chip's traffic manager.

#ifndef INNET_MARKING_P4
#define INNET_MARKING_P4

#include "metadata.p4"

control Marking(inout egress_headers_t hdr, in egress_intrinsic_metadata_t standard) {
    apply {
        if (hdr.ipv4.isValid() && standard.enq_qdepth[18:MARKING_BITS] != 0) {
            hdr.ipv4.ecn = ECN_CONGESTED;
        }
    }
}

#endif
