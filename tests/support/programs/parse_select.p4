// Select by masks, ranges and several keys of odd widths; what no case has is accepted.

#include <core.p4>
#include <v1model.p4>

header keys_t {
    bit<3>  small;
    bit<13> large;
    bit<1>  flag;
    bit<7>  rest;
    bit<8>  way;
}

struct headers_t {
    keys_t keys;
}

struct metadata_t {
    bit<100> wide;
}

parser SelectParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.keys);
        meta.wide = 84w0 ++ hdr.keys.small ++ hdr.keys.large;
        transition select(hdr.keys.small, hdr.keys.large, hdr.keys.flag) {
            (1, 0x1000 &&& 0x1f00, _): masked;
            (2, 100 .. 1003, 1): ranged;
            (2 .. 5, _, 0): small_range;
            (7, _, _): by_wide;
            (6, default, 1): accept;
            (6, 0x0aaa, 0): exact;
        }
    }

    state masked {
        hdr.keys.way = 1;
        transition accept;
    }

    state ranged {
        hdr.keys.way = 2;
        transition accept;
    }

    state small_range {
        hdr.keys.way = 3;
        transition accept;
    }

    state exact {
        hdr.keys.way = 4;
        transition accept;
    }

    state by_wide {
        transition select(meta.wide) {
            0xe001: masked;
            0xe100 &&& 0xffffffffffffffffffffffff0: ranged;
            default: reject;
        }
    }
}

control SelectIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error != error.NoError) {
            hdr.keys.way = 0xff;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SelectDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.keys);
    }
}

V1Switch(SelectParser(), NoVerification(), SelectIngress(), NoEgress(), NoUpdate(),
         SelectDeparser()) main;
