// A parser that is used twice by another, with the stack and the counter of each use.

#include <core.p4>
#include <v1model.p4>

header count_t { bit<8> items; }
header item_t { bit<8> number; }

struct group_t {
    count_t   count;
    item_t[3] items;
}

struct headers_t {
    group_t first;
    group_t second;
}

struct metadata_t { }

parser GroupParser(packet_in packet, inout group_t group) {
    bit<8> left;

    state start {
        packet.extract(group.count);
        left = group.count.items;
        transition next;
    }

    state next {
        transition select(left) {
            0: accept;
            default: item;
        }
    }

    state item {
        packet.extract(group.items.next);
        left = left - 1;
        transition next;
    }
}

parser GroupsParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    GroupParser() group;

    state start {
        group.apply(packet, hdr.first);
        transition select(hdr.first.count.items) {
            0: accept;
            default: another;
        }
    }

    state another {
        group.apply(packet, hdr.second);
        transition accept;
    }
}

control GroupsIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.first.count.items = 0xee;
        }
        if (hdr.second.items[0].isValid()) {
            hdr.second.items[0].number = hdr.second.items[0].number + hdr.first.items[0].number;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control GroupsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.first.count);
        packet.emit(hdr.first.items);
        packet.emit(hdr.second.count);
        packet.emit(hdr.second.items);
    }
}

V1Switch(GroupsParser(), NoVerification(), GroupsIngress(), NoEgress(), NoUpdate(),
         GroupsDeparser()) main;
