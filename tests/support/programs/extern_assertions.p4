// Assertions that a packet may break, and a log of what passes.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  small;
    int<8>  signed_number;
    bit<32> unbroken;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start { packet.extract(hdr.probe); transition accept; }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    action check(bit<8> most) {
        assert(hdr.probe.small <= most);
        hdr.probe.unbroken = hdr.probe.unbroken + 1;
    }

    @name("limits")
    table limits {
        key = { standard.ingress_port: exact @name("port"); }
        actions = { check; NoAction; }
        default_action = NoAction;
    }

    apply {
        standard.egress_spec = standard.ingress_port;
        log_msg("{first} small {} of \"\\{\\}\", {}%, done", { hdr.probe.small, hdr.probe.small, hdr.probe.signed_number });
        log_msg("nothing to say");
        limits.apply();
        assume(hdr.probe.unbroken != 0);
        hdr.probe.unbroken = hdr.probe.unbroken + 1;
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control TestUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), NoEgress(), TestUpdate(), TestDeparser()) main;
