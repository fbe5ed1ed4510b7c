// Whether one of a stack's header unions has anything in it.

#include <core.p4>
#include <v1model.p4>

header request_t { bit<8> options; bit<8> seen; }
header short_t { bit<8> value; }
header long_t { bit<16> value; }
header_union option_t { short_t s; long_t l; }

struct headers_t { request_t request; option_t[2] options; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.options) {
            1: last;
            2: two;
            3: three;
            default: accept;
        }
    }
    state three {
        packet.extract(hdr.options.next.s);
        transition two;
    }
    state two {
        packet.extract(hdr.options.next.l);
        transition last;
    }
    state last {
        packet.extract(hdr.options.next.s);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.options[0].isValid()) { hdr.request.seen = hdr.request.seen | 1; }
        if (hdr.options[1].isValid()) { hdr.request.seen = hdr.request.seen | 2; }
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.request.seen = hdr.request.seen | 4;
        }
        hdr.options[1].s.setInvalid();
        if (!hdr.options[1].isValid()) { hdr.request.seen = hdr.request.seen | 8; }
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
