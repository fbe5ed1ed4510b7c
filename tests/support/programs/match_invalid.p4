// Fields of a header that is not there match as zeros.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> more;
    bit<8> result;
}

header more_t {
    bit<16> value;
}

struct headers_t {
    probe_t probe;
    more_t more;
}

struct metadata_t { }

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition select(hdr.probe.more) {
            0: accept;
            default: parse_more;
        }
    }

    state parse_more {
        packet.extract(hdr.more);
        transition accept;
    }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    action set_result(bit<8> result) {
        hdr.probe.result = result;
    }

    @name("values")
    table values {
        key = {
            hdr.more.value: exact @name("value");
            hdr.more.isValid(): exact @name("valid");
        }
        actions = { set_result; NoAction; }
        default_action = NoAction;
    }

    apply {
        if (hdr.probe.more == 2) {
            hdr.more.setInvalid();
        }
        values.apply();
        standard.egress_spec = standard.ingress_port;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control TestUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
        packet.emit(hdr.more);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), NoEgress(), TestUpdate(), TestDeparser()) main;
