// Every error, of the language and of the program, as the ingress sees it.

#include <core.p4>
#include <v1model.p4>

error { Unwelcome, Worse }

header request_t {
    bit<8> code;
    bit<8> error_seen;
}

header more_t { bit<16> value; }

struct headers_t {
    request_t request;
    more_t    more;
    more_t    last;
}

struct metadata_t { }

parser ErrorParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        verify(hdr.request.code != 1, error.NoError);
        verify(hdr.request.code != 2, error.PacketTooShort);
        verify(hdr.request.code != 3, error.NoMatch);
        verify(hdr.request.code != 4, error.StackOutOfBounds);
        verify(hdr.request.code != 5, error.HeaderTooShort);
        verify(hdr.request.code != 6, error.ParserTimeout);
        verify(hdr.request.code != 7, error.ParserInvalidArgument);
        verify(hdr.request.code != 8, error.Unwelcome);
        packet.extract(hdr.more);
        verify(hdr.request.code != 9 && hdr.more.value < 0x8000, error.Worse);
        packet.extract(hdr.last);
        transition accept;
    }
}

control ErrorIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.NoError) {
            hdr.request.error_seen = 0x10;
        } else if (standard.parser_error == error.PacketTooShort) {
            hdr.request.error_seen = 0x11;
        } else if (standard.parser_error == error.NoMatch) {
            hdr.request.error_seen = 0x12;
        } else if (standard.parser_error == error.StackOutOfBounds) {
            hdr.request.error_seen = 0x13;
        } else if (standard.parser_error == error.HeaderTooShort) {
            hdr.request.error_seen = 0x14;
        } else if (standard.parser_error == error.ParserTimeout) {
            hdr.request.error_seen = 0x15;
        } else if (standard.parser_error == error.ParserInvalidArgument) {
            hdr.request.error_seen = 0x16;
        } else if (standard.parser_error == error.Unwelcome) {
            hdr.request.error_seen = 0x17;
        } else if (standard.parser_error == error.Worse) {
            hdr.request.error_seen = 0x18;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ErrorDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.more);
        packet.emit(hdr.last);
    }
}

V1Switch(ErrorParser(), NoVerification(), ErrorIngress(), NoEgress(), NoUpdate(),
         ErrorDeparser()) main;
