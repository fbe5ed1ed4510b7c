// Meters of packets and of bytes, reached by index.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> index;
    bit<8> packets;
    bit<8> bytes;
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
    meter(4, MeterType.packets) by_packets;
    meter(4, MeterType.bytes) by_bytes;

    apply {
        by_packets.execute_meter((bit<32>)hdr.probe.index, hdr.probe.packets);
        by_bytes.execute_meter((bit<32>)hdr.probe.index, hdr.probe.bytes);
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
