// Fields that are signed, of an enum, or bool, in headers and in nested metadata.

#include <core.p4>
#include <v1model.p4>

enum bit<8> kind_t {
    Small = 1,
    Large = 7
}

enum colour_t { Red, Green }

header values_t {
    kind_t  kind;
    int<8>  number;
    int<12> odd;
    bit<3>  padding;
    bool    flag;
    bit<8>  seen;
}

struct headers_t {
    values_t values;
}

struct inner_t {
    bool     flag;
    int<8>   number;
    colour_t colour;
}

struct outer_t {
    inner_t inner;
    bit<9>  port;
}

struct metadata_t {
    outer_t outer;
    kind_t  kind;
}

parser TypeParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.values);
        meta.kind = hdr.values.kind;
        meta.outer.inner.flag = hdr.values.flag;
        transition select(hdr.values.kind, hdr.values.number) {
            (kind_t.Small, 5): minus;
            (kind_t.Large, _): large;
            default: accept;
        }
    }

    state minus {
        hdr.values.seen = hdr.values.seen | 1;
        transition accept;
    }

    state large {
        hdr.values.seen = hdr.values.seen | 2;
        transition select(meta.outer.inner.flag) {
            true: minus;
            false: accept;
        }
    }
}

control TypeIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        meta.outer.port = standard.ingress_port;
        meta.outer.inner.number = hdr.values.number;
        meta.outer.inner.colour = colour_t.Green;
        if (meta.outer.inner.number < 0 && hdr.values.odd < meta.outer.inner.number ++ 4w0) {
            meta.outer.inner.colour = colour_t.Red;
        }
        if (meta.outer.inner.colour == colour_t.Red) {
            hdr.values.seen = hdr.values.seen | 4;
        }
        if (meta.kind == kind_t.Small) {
            hdr.values.kind = kind_t.Large;
            hdr.values.number = hdr.values.number |+| 100;
            hdr.values.odd = (int<12>)meta.outer.inner.number;
        } else {
            hdr.values.number = -hdr.values.number;
            hdr.values.odd = hdr.values.odd >> 3;
            hdr.values.flag = !hdr.values.flag;
        }
        standard.egress_spec = meta.outer.port;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TypeDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.values);
    }
}

V1Switch(TypeParser(), NoVerification(), TypeIngress(), NoEgress(), NoUpdate(),
         TypeDeparser()) main;
