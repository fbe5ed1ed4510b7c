// The times of standard metadata as they are.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<48> came;
    bit<48> left;
    bit<32> queued;
    bit<32> waited;
    bit<32> depths;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser PathTimeParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathTimeIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        hdr.probe.came = standard.ingress_global_timestamp;
    }
}

control PathTimeEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    apply {
        hdr.probe.left = standard.egress_global_timestamp;
        hdr.probe.queued = standard.enq_timestamp;
        hdr.probe.waited = standard.deq_timedelta;
        hdr.probe.depths = (bit<32>)standard.enq_qdepth + (bit<32>)standard.deq_qdepth;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathTimeDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathTimeParser(), NoVerification(), PathTimeIngress(), PathTimeEgress(), NoUpdate(),
         PathTimeDeparser()) main;
