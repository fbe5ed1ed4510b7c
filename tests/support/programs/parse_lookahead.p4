// What is in front of the parser: fields, a header wider than any integer, and bytes passed over.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8>  code;
    bit<8>  skip;
    bit<16> error_seen;
}

header wide_t {
    bit<4>   version;
    bit<60>  rest;
    bit<128> address;
    bit<16>  last;
}

header found_t {
    bit<4>   version;
    bit<4>   padding;
    bit<128> address;
    bit<16>  last;
}

struct pair_t {
    bit<12> first;
    bit<20> second;
}

header pair_found_t {
    bit<16> first;
    bit<24> second;
}

struct headers_t {
    request_t    request;
    found_t      found;
    pair_found_t pair;
}

struct metadata_t { }

parser LookaheadParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.code, packet.lookahead<bit<8>>()) {
            (1, _): wide;
            (2, _): pair;
            (3, 0x77): skip;
            (4, _): skip_bits;
            default: accept;
        }
    }

    state wide {
        wide_t wide = packet.lookahead<wide_t>();
        hdr.found.setValid();
        hdr.found.version = wide.version;
        hdr.found.address = wide.address;
        hdr.found.last = wide.last;
        packet.advance(8);
        transition accept;
    }

    state pair {
        pair_t pair = packet.lookahead<pair_t>();
        hdr.pair.setValid();
        hdr.pair.first = (bit<16>)pair.first;
        hdr.pair.second = (bit<24>)pair.second;
        transition accept;
    }

    state skip {
        packet.advance((bit<32>)hdr.request.skip * 8);
        transition accept;
    }

    state skip_bits {
        packet.advance((bit<32>)hdr.request.skip);
        transition accept;
    }
}

control LookaheadIngress(inout headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.PacketTooShort) {
            hdr.request.error_seen = 1;
        } else if (standard.parser_error == error.ParserInvalidArgument) {
            hdr.request.error_seen = 2;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control LookaheadDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.found);
        packet.emit(hdr.pair);
    }
}

V1Switch(LookaheadParser(), NoVerification(), LookaheadIngress(), NoEgress(), NoUpdate(),
         LookaheadDeparser()) main;
