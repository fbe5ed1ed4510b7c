// What a control plane can ask of tables and registers: every frame goes back to where it came from,
// unless a table says otherwise.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

struct headers_t {
    ethernet_t ethernet;
}

struct metadata_t { }

parser OneParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ControlIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    register<bit<48>>(4) last;
    register<int<12>>(4) balance;
    register<bit<72>>(2) wide;
    @name("seen") direct_counter(CounterType.packets_and_bytes) seen;

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard);
        exit;
    }

    action set_destination(bit<48> address) {
        hdr.ethernet.destination = address;
    }

    action set_source(bit<48> address) {
        hdr.ethernet.source = address;
    }

    action set_both(bit<48> destination, bit<48> source) {
        hdr.ethernet.destination = destination;
        hdr.ethernet.source = source;
    }

    // The first match wins, whatever the order in which entries come later.
    @name("fixed")
    table fixed {
        key = {
            hdr.ethernet.ether_type: ternary @name("type");
            hdr.ethernet.source: optional @name("source");
        }
        actions = { forward; drop; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (0xdead, 5): forward(1);
            (0xde00 &&& 0xff00, _): drop();
        }
        counters = seen;
    }

    @name("initial")
    table initial {
        key = { hdr.ethernet.ether_type: exact @name("type"); }
        actions = { forward; drop; @defaultonly NoAction; }
        default_action = NoAction;
        entries = {
            0xbeef: drop();
        }
        size = 16;
    }

    @name("aging")
    table aging {
        key = { hdr.ethernet.ether_type: exact @name("type"); }
        actions = { forward; drop; @defaultonly NoAction; }
        default_action = NoAction;
        support_timeout = true;
    }

    @name("destinations")
    table destinations {
        key = { hdr.ethernet.ether_type: exact @name("type"); }
        actions = { set_destination; set_both; @defaultonly NoAction; }
        default_action = NoAction;
    }

    @name("sources")
    table sources {
        key = { hdr.ethernet.ether_type: exact @name("type"); }
        actions = { set_source; @defaultonly NoAction; }
        default_action = NoAction;
    }

    apply {
        standard.egress_spec = standard.ingress_port;
        fixed.apply();
        initial.apply();
        aging.apply();
        destinations.apply();
        sources.apply();
        last.write(0, hdr.ethernet.source);
        int<12> held;
        balance.read(held, 0);
        balance.write(0, held - 1);
        bit<72> sum;
        wide.read(sum, 0);
        wide.write(0, sum + (bit<72>) hdr.ethernet.ether_type);
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }

control OneDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(OneParser(), NoChecksum(), ControlIngress(), NoEgress(), NoChecksum(),
         OneDeparser()) main;
