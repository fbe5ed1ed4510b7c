// A stack of labels, parsed up to its bottom; the request says what is done to it.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> code;
    bit<8> last_index;
    bit<8> sum;
    bit<8> overflow;
    bit<8> valid;
}

header label_t {
    bit<7> number;
    bit<1> bottom;
}

struct headers_t {
    request_t  request;
    label_t[4] labels;
    label_t[4] saved;
}

struct metadata_t { }

parser StackParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition labels;
    }

    state labels {
        packet.extract(hdr.labels.next);
        hdr.request.last_index = (bit<8>)hdr.labels.lastIndex;
        hdr.request.sum = hdr.request.sum + (bit<8>)hdr.labels.last.number;
        transition select(hdr.labels.last.bottom) {
            0: labels;
            1: accept;
        }
    }
}

control StackIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.request.overflow = 1;
        }
        if (hdr.request.code == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].number = 99;
        } else if (hdr.request.code == 2) {
            hdr.labels.push_front(3);
        } else if (hdr.request.code == 3) {
            hdr.labels.push_front(9);
        } else if (hdr.request.code == 4) {
            hdr.labels.pop_front(1);
        } else if (hdr.request.code == 5) {
            hdr.labels.pop_front(3);
        } else if (hdr.request.code == 6) {
            hdr.labels.pop_front(9);
        } else if (hdr.request.code == 7) {
            hdr.saved = hdr.labels;
            hdr.labels.pop_front(1);
        } else if (hdr.request.code == 8) {
            hdr.labels[1].setInvalid();
            hdr.labels[2] = hdr.labels[0];
        }
        hdr.request.valid = 0;
        if (hdr.labels[0].isValid()) { hdr.request.valid = hdr.request.valid | 1; }
        if (hdr.labels[1].isValid()) { hdr.request.valid = hdr.request.valid | 2; }
        if (hdr.labels[2].isValid()) { hdr.request.valid = hdr.request.valid | 4; }
        if (hdr.labels[3].isValid()) { hdr.request.valid = hdr.request.valid | 8; }
        if (hdr.saved == hdr.labels) { hdr.request.valid = hdr.request.valid | 16; }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control StackDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.labels);
        packet.emit(hdr.saved);
    }
}

V1Switch(StackParser(), NoVerification(), StackIngress(), NoEgress(), NoUpdate(),
         StackDeparser()) main;
