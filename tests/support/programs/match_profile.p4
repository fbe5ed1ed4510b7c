// Two tables that share the actions of one profile.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  key;
    bit<32> flow;
    bit<8>  first;
    bit<8>  second;
    bit<8>  hit;
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
    action_profile(8) shared;

    action add(bit<8> number) {
        hdr.probe.second = hdr.probe.second + number;
    }

    action double() {
        hdr.probe.second = hdr.probe.second << 1;
    }

    @name("one")
    table one {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { add; double; }
        implementation = shared;
        size = 4;
    }

    @name("other")
    table other {
        key = { hdr.probe.first: ternary @name("first"); }
        actions = { add; double; }
        implementation = shared;
        size = 4;
    }

    apply {
        if (one.apply().hit) {
            hdr.probe.hit = 1;
        }
        other.apply();
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
