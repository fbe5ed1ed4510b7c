// A parser that a packet can keep busy for ever.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> step;
    bit<8> timeout;
}

header item_t { bit<8> value; }

struct headers_t {
    request_t request;
    item_t    item;
}

struct metadata_t { }

parser EndlessParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition next;
    }

    state next {
        transition select(packet.lookahead<bit<8>>()) {
            0: accept;
            default: pass;
        }
    }

    state pass {
        packet.advance((bit<32>)hdr.request.step * 8);
        transition next;
    }
}

control EndlessIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.ParserTimeout) {
            hdr.request.timeout = 1;
        } else if (standard.parser_error != error.NoError) {
            hdr.request.timeout = 2;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control EndlessDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.item);
    }
}

V1Switch(EndlessParser(), NoVerification(), EndlessIngress(), NoEgress(), NoUpdate(),
         EndlessDeparser()) main;
