// A bridge that learns in registers where an address was last seen, and floods what it does not know.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> ether_type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { bit<48> owner; bit<9> port; bit<1> known; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<48>>(8) owners;
    register<bit<9>>(8) places;
    register<bit<1>>(8) taken;
    @name("moves") counter(8, CounterType.packets) moves;

    action learn(bit<32> cell) {
        bit<9> before;
        places.read(before, cell);
        owners.write(cell, hdr.ethernet.source);
        places.write(cell, standard.ingress_port);
        taken.write(cell, 1);
        if (before != standard.ingress_port) {
            moves.count(cell);
        }
    }

    apply {
        if (!hdr.ethernet.isValid()) {
            mark_to_drop(standard);
            exit;
        }
        if (hdr.ethernet.source[40:40] == 0) {
            learn((bit<32>) hdr.ethernet.source[2:0]);
        }
        bit<32> cell = (bit<32>) hdr.ethernet.destination[2:0];
        owners.read(meta.owner, cell);
        places.read(meta.port, cell);
        taken.read(meta.known, cell);
        if (meta.known == 1 && meta.owner == hdr.ethernet.destination) {
            if (meta.port == standard.ingress_port) {
                mark_to_drop(standard);
            } else {
                standard.egress_spec = meta.port;
            }
        } else {
            standard.mcast_grp = 1 + (bit<16>) hdr.ethernet.destination[0:0];
        }
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.instance_type == 5 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
