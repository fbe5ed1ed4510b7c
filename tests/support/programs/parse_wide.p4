// Fields wider than any integer: parsed off the byte, copied, compared, sliced and matched.

#include <core.p4>
#include <v1model.p4>

header wide_t {
    bit<4>   code;
    bit<256> one;
    bit<130> two;
    bit<130> three;
    bit<8>   seen;
}

struct headers_t {
    wide_t wide;
    wide_t copy;
}

struct metadata_t {
    bit<256> kept;
}

parser WideParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.wide);
        transition accept;
    }
}

control WideIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    action see(bit<8> what) {
        hdr.wide.seen = hdr.wide.seen | what;
    }

    table exactly {
        key = { hdr.wide.three: exact; }
        actions = { see; NoAction; }
        default_action = NoAction;
    }

    table masked {
        key = { hdr.wide.two: ternary; hdr.wide.code: exact; }
        actions = { see; NoAction; }
        default_action = NoAction;
    }

    table by_prefix {
        key = { hdr.wide.one: lpm; }
        actions = { see; NoAction; }
        default_action = NoAction;
    }

    apply {
        standard.egress_spec = standard.ingress_port;
        exactly.apply();
        masked.apply();
        by_prefix.apply();
        if (hdr.wide.two == hdr.wide.three) { see(1); }
        if (hdr.wide.two < hdr.wide.three) { see(2); }
        if (hdr.wide.one == 0x0123456789abcdef0123456789abcdef0123456789abcdef) { see(4); }
        if (hdr.wide.code == 1) {
            hdr.copy = hdr.wide;
            hdr.copy.two = hdr.wide.three;
        } else if (hdr.wide.code == 2) {
            hdr.wide.one = 0xfedcba9876543210fedcba9876543210fedcba9876543210;
        } else if (hdr.wide.code == 3) {
            meta.kept = hdr.wide.one;
            hdr.wide.one = (bit<256>)hdr.wide.two;
            hdr.wide.two = (bit<130>)meta.kept;
        } else if (hdr.wide.code == 4) {
            hdr.wide.seen = hdr.wide.one[139:132];
            hdr.wide.one[71:8] = hdr.wide.two[68:5];
        } else if (hdr.wide.code == 5) {
            hdr.wide.one = (bit<256>)hdr.wide.seen;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control WideDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.wide);
        packet.emit(hdr.copy);
    }
}

V1Switch(WideParser(), NoVerification(), WideIngress(), NoEgress(), NoUpdate(),
         WideDeparser()) main;
