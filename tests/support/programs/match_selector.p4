// A selector: the hash of a flow chooses among the actions of a group.

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
    action_selector(HashAlgorithm.crc16, 32w64, 32w16) ways;

    action send(bit<8> way) {
        hdr.probe.first = way;
    }

    action drop() {
        mark_to_drop(standard);
    }

    @name("routes")
    table routes {
        key = {
            hdr.probe.key: exact @name("key");
            hdr.probe.flow: selector;
        }
        actions = { send; drop; }
        implementation = ways;
        size = 8;
    }

    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.probe.hit = 2;
        if (routes.apply().hit) {
            hdr.probe.hit = 1;
        }
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
