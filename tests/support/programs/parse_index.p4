// Elements of a stack that the packet chooses.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> code;
    bit<8> index;
    bit<8> value;
}

header item_t {
    bit<8> number;
}

struct headers_t {
    request_t request;
    item_t[3] items;
}

struct metadata_t { }

parser IndexParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        transition select(hdr.request.code) {
            1: read;
            default: accept;
        }
    }

    state read {
        hdr.request.value = hdr.items[hdr.request.index].number;
        transition accept;
    }
}

control IndexIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.request.value = 0xee;
        }
        if (hdr.request.code == 2) {
            hdr.request.value = hdr.items[hdr.request.index].number;
        } else if (hdr.request.code == 3) {
            hdr.items[hdr.request.index].number = hdr.request.value;
        } else if (hdr.request.code == 4) {
            hdr.items[hdr.request.index].setInvalid();
        } else if (hdr.request.code == 5) {
            hdr.items[0] = hdr.items[hdr.request.index];
        } else if (hdr.request.code == 6) {
            hdr.items[hdr.request.index] = hdr.items[0];
        } else if (hdr.request.code == 7) {
            hdr.items[hdr.request.index].number = hdr.request.value;
            hdr.request.value = hdr.items[hdr.request.index].number;
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control IndexDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.items);
    }
}

V1Switch(IndexParser(), NoVerification(), IndexIngress(), NoEgress(), NoUpdate(),
         IndexDeparser()) main;
