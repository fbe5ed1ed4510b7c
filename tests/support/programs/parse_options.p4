// Options of a type, a length and a value, as many as there are, in a stack of varbits.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> options;
    bit<8> error_seen;
}

header option_t {
    bit<8>      kind;
    bit<8>      length;
    varbit<128> value;
}

struct headers_t {
    request_t   request;
    option_t[3] options;
}

struct metadata_t {
    bit<8> left;
}

struct prefix_t {
    bit<8> kind;
    bit<8> length;
}

parser OptionParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        meta.left = hdr.request.options;
        transition next;
    }

    state next {
        transition select(meta.left) {
            0: accept;
            default: option;
        }
    }

    state option {
        packet.extract(hdr.options.next, (bit<32>)packet.lookahead<prefix_t>().length * 8);
        meta.left = meta.left - 1;
        transition next;
    }
}

control OptionIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.request.error_seen = 1;
        } else if (standard.parser_error != error.NoError) {
            hdr.request.error_seen = 2;
        }
        if (hdr.options[1].isValid() && hdr.options[1].kind == 0x22) {
            hdr.options.pop_front(1);
        }
        if (hdr.options[0].isValid() && hdr.options[0].kind == 0x33) {
            hdr.options.push_front(1);
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control OptionDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.options);
    }
}

V1Switch(OptionParser(), NoVerification(), OptionIngress(), NoEgress(), NoUpdate(),
         OptionDeparser()) main;
