// So many packets and bytes for each flow, counted in registers; what is counted is told in the packet.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
header report_t { bit<3> flow; bit<13> packets; bit<32> bytes; bit<16> refused; }

struct headers_t { ethernet_t ethernet; report_t report; }
struct metadata_t { bit<13> packets; bit<32> bytes; bit<16> refused; bit<13> most; bit<3> flow; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<13>>(8) packets;
    register<bit<32>>(8) octets;
    register<bit<16>>(1) refusals;
    @name("over") counter(8, CounterType.packets_and_bytes) over;

    action limit(bit<3> flow, bit<13> most) {
        meta.flow = flow;
        meta.most = most & 0xf;
        packets.read(meta.packets, (bit<32>) flow);
        octets.read(meta.bytes, (bit<32>) flow);
        meta.packets = meta.packets |+| 1;
        meta.bytes = meta.bytes + standard.packet_length;
        packets.write((bit<32>) flow, meta.packets);
        octets.write((bit<32>) flow, meta.bytes);
    }
    action reset(bit<3> flow) {
        packets.write((bit<32>) flow, 0x1ffe);
        meta.most = 1;
    }

    @name("flows")
    table flows {
        key = { hdr.ethernet.source: ternary; hdr.ethernet.ether_type: exact; }
        actions = { limit; reset; }
        default_action = limit(7, 12);
        size = 16;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        flows.apply();
        refusals.read(meta.refused, 0);
        if (meta.packets > meta.most) {
            over.count((bit<32>) meta.flow);
            meta.refused = meta.refused + 1;
            refusals.write(0, meta.refused);
            if (meta.refused[1:0] != 3) {
                mark_to_drop(standard);
                return;
            }
        }
        hdr.report.setValid();
        hdr.report.flow = meta.flow;
        hdr.report.packets = meta.packets;
        hdr.report.bytes = meta.bytes;
        hdr.report.refused = meta.refused;
        standard.egress_spec = standard.ingress_port;
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
