// Select keys that a controller says.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  kind;
    bit<16> port;
}

header mark_t { bit<8> value; }

struct headers_t {
    request_t request;
    mark_t    mark;
}

struct metadata_t { }

struct pair_t {
    bit<8>  kind;
    bit<16> port;
}

parser SetParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) {
    value_set<bit<8>>(4) kinds;
    value_set<pair_t>(2) pairs;

    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.kind) {
            0: accept;
            kinds: known_kind;
            default: other_kind;
        }
    }

    state known_kind {
        hdr.mark.setValid();
        hdr.mark.value = 1;
        transition accept;
    }

    state other_kind {
        transition select(hdr.request.kind, hdr.request.port) {
            pairs: known_pair;
            (0xee, _): known_kind;
            default: accept;
        }
    }

    state known_pair {
        hdr.mark.setValid();
        hdr.mark.value = 2;
        transition accept;
    }
}

control SetIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SetDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.mark);
    }
}

V1Switch(SetParser(), NoVerification(), SetIngress(), NoEgress(), NoUpdate(),
         SetDeparser()) main;
