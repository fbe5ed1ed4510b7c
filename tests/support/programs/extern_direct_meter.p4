// A meter and a counter for every entry of a table.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> key;
    bit<8> colour;
    bit<8> action_number;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t {
    bit<8> colour;
}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start { packet.extract(hdr.probe); transition accept; }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TestIngress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    direct_meter<bit<8>>(MeterType.packets) speed;
    direct_counter(CounterType.packets_and_bytes) passed;

    action pass(bit<8> number) {
        passed.count();
        speed.read(meta.colour);
        hdr.probe.action_number = number;
    }

    @name("flows")
    table flows {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { pass; NoAction; }
        default_action = NoAction;
        meters = speed;
        counters = passed;
        size = 8;
    }

    apply {
        meta.colour = 9;
        flows.apply();
        hdr.probe.colour = meta.colour;
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
