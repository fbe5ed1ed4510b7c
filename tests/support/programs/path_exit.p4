// Ends of controls: nothing behind an exit is done, and the other control is whole.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> steps;
}

struct headers_t {
    probe_t probe;
}

struct metadata_t { }

parser PathExitParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control PathExitIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard) {
    action leave() { hdr.probe.steps[8:8] = 1; exit; }
    action leave_if(bit<8> value) {
        if (value == 7) {
            hdr.probe.steps[9:9] = 1;
            exit;
        }
        hdr.probe.steps[10:10] = 1;
    }
    table ends {
        key = { hdr.probe.command: exact; }
        actions = { leave; leave_if; NoAction; }
        const entries = {
            1: leave();
            2: leave_if(7);
            3: leave_if(8);
        }
    }

    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        if (ends.apply().hit) { hdr.probe.steps[0:0] = 1; }
        hdr.probe.steps[1:1] = 1;
        if (hdr.probe.command == 4) { exit; }
        hdr.probe.steps[2:2] = 1;
    }
}

control PathExitEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard) {
    action leave() { hdr.probe.steps[11:11] = 1; exit; }
    table ends {
        key = { hdr.probe.command: exact; }
        actions = { leave; NoAction; }
        const entries = {
            6: leave();
        }
    }

    apply {
        if (hdr.probe.command == 5) { exit; }
        hdr.probe.steps[3:3] = 1;
        ends.apply();
        hdr.probe.steps[4:4] = 1;
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathExitDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(PathExitParser(), NoVerification(), PathExitIngress(), PathExitEgress(), NoUpdate(),
         PathExitDeparser()) main;
