// Ranges beside the other kinds of matches: the highest priority wins.

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
    direct_counter(CounterType.packets) hits;

    action set_result(bit<8> result) {
        hits.count();
        hdr.probe.result = result;
    }

    action missed() {
        hdr.probe.result = 255;
    }

    @name("rules")
    table rules {
        key = {
            hdr.probe.length: range @name("length");
            hdr.probe.kind: ternary @name("kind");
            hdr.probe.address: lpm @name("address");
            hdr.probe.port: exact @name("port");
        }
        actions = { set_result; missed; }
        default_action = missed;
        counters = hits;
        size = 32;
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
