// Entries that are there from the beginning, with priorities of their own.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<4>  port;
    bit<12> length;
    bit<16> kind;
    bit<32> address;
    bit<8>  result;
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
    action set_result(bit<8> result) {
        hdr.probe.result = result;
    }

    @name("rules")
    table rules {
        key = { hdr.probe.kind: ternary @name("kind"); }
        actions = { set_result; NoAction; }
        default_action = NoAction;
        entries = {
            priority=10: 0x0001 &&& 0x0001: set_result(1);
            priority=30: 0x0002 &&& 0x0002: set_result(2);
            priority=20: 0x0004 &&& 0x0004: set_result(3);
        }
    }

    apply {
        rules.apply();
        standard.egress_spec = standard.ingress_port;
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
