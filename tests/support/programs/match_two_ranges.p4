// Two ranges, one of them wider than a machine word.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<100> wide;
    bit<4>   narrow;
    bit<8>   result;
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

    @name("boxes")
    table boxes {
        key = {
            hdr.probe.wide: range @name("wide");
            hdr.probe.narrow: range @name("narrow");
        }
        actions = { set_result; NoAction; }
        default_action = NoAction;
    }

    apply {
        boxes.apply();
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
