// One of everything that a P4Runtime controller can program: tables of all kinds, counters, meters, an
// action profile and a selector, copies, digests, packets from and to the controller.

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;
const bit<32> MIRROR = 7;

@controller_header("packet_in")
header packet_in_t {
    bit<16> ingress_port;
}

@controller_header("packet_out")
header packet_out_t {
    bit<16> egress_port;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

struct metadata_t {
    bit<2> color;
}

struct station_t {
    bit<48> address;
    bit<9> port;
}

parser TutorialParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TutorialIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard) {
    @name("frames") counter(512, CounterType.packets_and_bytes) frames;
    @name("policer") meter(4, MeterType.packets) policer;
    @name("forwarded") direct_counter(CounterType.packets_and_bytes) forwarded;
    @name("rate") direct_meter<bit<2>>(MeterType.bytes) rate;
    @name("members") action_profile(16) members;
    @name("paths") action_selector(HashAlgorithm.crc16, 16, 8) paths;

    action drop() {
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
        forwarded.count();
    }

    action copy_to_group(bit<16> group) {
        standard.mcast_grp = group;
    }

    action mirror() {
        clone(CloneType.I2E, MIRROR);
    }

    action allow() { }

    action learn() {
        digest<station_t>(1, { hdr.ethernet.source, standard.ingress_port });
    }

    action metered() {
        rate.read(meta.color);
    }

    action rewrite(bit<48> address) {
        hdr.ethernet.destination = address;
    }

    @name("learning")
    table learning {
        key = { hdr.ethernet.source: exact @name("source"); }
        actions = { allow; learn; }
        default_action = allow;
        support_timeout = true;
    }

    @name("acl")
    table acl {
        key = {
            hdr.ethernet.source: ternary @name("source");
            hdr.ethernet.ether_type: range @name("type");
            standard.ingress_port: optional @name("port");
        }
        actions = { metered; @defaultonly NoAction; }
        default_action = NoAction;
        meters = rate;
    }

    @name("mirrors")
    table mirrors {
        key = { standard.ingress_port: exact @name("port"); }
        actions = { mirror; copy_to_group; @defaultonly NoAction; }
        default_action = NoAction;
    }

    @name("bridge")
    table bridge {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { to_port; drop; }
        default_action = drop;
        counters = forwarded;
    }

    @name("routes")
    table routes {
        key = { hdr.ethernet.destination: lpm @name("destination"); }
        actions = { forward; rewrite; @defaultonly NoAction; }
        default_action = NoAction;
    }

    @name("shared")
    table shared {
        key = { hdr.ethernet.ether_type: exact @name("type"); }
        actions = { rewrite; @defaultonly NoAction; }
        implementation = members;
    }

    @name("balanced")
    table balanced {
        key = {
            hdr.ethernet.ether_type: exact @name("type");
            hdr.ethernet.source: selector;
        }
        actions = { forward; @defaultonly NoAction; }
        implementation = paths;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = (bit<9>) hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            frames.count((bit<32>) standard.ingress_port);
            policer.execute_meter<bit<2>>((bit<32>) 0, meta.color);
            learning.apply();
            acl.apply();
            mirrors.apply();
            shared.apply();
            bridge.apply();
            routes.apply();
            balanced.apply();
        }
    }
}

control TutorialEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (bit<16>) standard.ingress_port;
        }
    }
}

control TutorialDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(TutorialParser(), NoChecksum(), TutorialIngress(), TutorialEgress(), NoChecksum(),
         TutorialDeparser()) main;
