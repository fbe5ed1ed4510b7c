// A header with options, in whose checksum they are; they can be copied and compared.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  code;
    bit<8>  error_seen;
    bit<16> length;
}

header fields_t {
    bit<4>        first;
    varbit<64>    options;
    bit<4>        last;
    bit<16>       sum;
}

struct headers_t {
    request_t request;
    fields_t  one;
    fields_t  two;
}

struct metadata_t { }

parser VarbitParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        packet.extract(hdr.one, (bit<32>)hdr.request.length);
        transition select(hdr.request.code) {
            3: second;
            default: accept;
        }
    }

    state second {
        packet.extract(hdr.two, 16);
        transition accept;
    }
}

control VarbitIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.PacketTooShort) {
            hdr.request.error_seen = 1;
        } else if (standard.parser_error == error.HeaderTooShort) {
            hdr.request.error_seen = 2;
        } else if (standard.parser_error == error.ParserInvalidArgument) {
            hdr.request.error_seen = 3;
        }
        if (hdr.request.code == 1) {
            hdr.two = hdr.one;
            hdr.two.first = 0xf;
        } else if (hdr.request.code == 2) {
            hdr.one.setInvalid();
            hdr.two.setValid();
            hdr.two.first = 7;
        } else if (hdr.request.code == 3) {
            if (hdr.one.options == hdr.two.options) {
                hdr.request.length = 0xeeee;
            }
            hdr.two.options = hdr.one.options;
        }
    }
}

control VarbitUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.one.isValid(), { hdr.one.first, hdr.one.options, hdr.one.last },
                        hdr.one.sum, HashAlgorithm.csum16);
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control VarbitDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.one);
        packet.emit(hdr.two);
    }
}

V1Switch(VarbitParser(), NoVerification(), VarbitIngress(), NoEgress(), VarbitUpdate(),
         VarbitDeparser()) main;
