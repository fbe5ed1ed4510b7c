// A stack of header unions: extracted to, pushed, popped, copied, compared.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> code; bit<8> seen; bit<8> extracted; bit<8> size;
    bit<8> first; bit<8> second; bit<8> third; bit<8> fourth;
}
header short_t { bit<8> kind; bit<8> value; }
header long_t { bit<8> kind; bit<24> value; }
header text_t { bit<8> kind; varbit<32> text; }
header_union option_t { short_t s; long_t l; text_t t; }

struct headers_t { request_t request; option_t[3] options; option_t[3] others; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition first;
    }
    state first {
        hdr.request.extracted = (bit<8>) hdr.options.lastIndex;
        transition select(hdr.request.first) {
            1: first_short;
            2: first_long;
            3: first_text;
            default: accept;
        }
    }
    state first_short {
        packet.extract(hdr.options.next.s);
        transition second;
    }
    state first_long {
        packet.extract(hdr.options.next.l);
        transition second;
    }
    state first_text {
        packet.extract(hdr.options.next.t, (bit<32>) (8 * hdr.request.size));
        transition second;
    }
    state second {
        hdr.request.extracted = (bit<8>) hdr.options.lastIndex;
        transition select(hdr.request.second) {
            1: second_short;
            2: second_long;
            3: second_text;
            default: accept;
        }
    }
    state second_short {
        packet.extract(hdr.options.next.s);
        transition third;
    }
    state second_long {
        packet.extract(hdr.options.next.l);
        transition third;
    }
    state second_text {
        packet.extract(hdr.options.next.t, (bit<32>) (8 * hdr.request.size));
        transition third;
    }
    state third {
        hdr.request.extracted = (bit<8>) hdr.options.lastIndex;
        transition select(hdr.request.third) {
            1: third_short;
            2: third_long;
            3: third_text;
            default: accept;
        }
    }
    state third_short {
        packet.extract(hdr.options.next.s);
        transition fourth;
    }
    state third_long {
        packet.extract(hdr.options.next.l);
        transition fourth;
    }
    state third_text {
        packet.extract(hdr.options.next.t, (bit<32>) (8 * hdr.request.size));
        transition fourth;
    }
    state fourth {
        hdr.request.extracted = (bit<8>) hdr.options.lastIndex;
        transition select(hdr.request.fourth) {
            1: fourth_short;
            2: fourth_long;
            3: fourth_text;
            default: accept;
        }
    }
    state fourth_short {
        packet.extract(hdr.options.next.s);
        transition accept;
    }
    state fourth_long {
        packet.extract(hdr.options.next.l);
        transition accept;
    }
    state fourth_text {
        packet.extract(hdr.options.next.t, (bit<32>) (8 * hdr.request.size));
        transition accept;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action push() { hdr.options.push_front(1); }
    action push_more() { hdr.options.push_front(2); }
    action push_all() { hdr.options.push_front(4); }
    action pop() { hdr.options.pop_front(1); }
    action pop_more() { hdr.options.pop_front(2); }
    action pop_all() { hdr.options.pop_front(3); }
    action copy() { hdr.others = hdr.options; }
    action copy_one() { hdr.options[2] = hdr.options[0]; }
    action set() {
        hdr.options[1].l.setValid();
        hdr.options[1].l.kind = 2;
        hdr.options[1].l.value = 0xabcdef;
    }
    action push_and_set() {
        hdr.options.push_front(1);
        hdr.options[0].s.setValid();
        hdr.options[0].s.kind = 1;
        hdr.options[0].s.value = 0x77;
    }
    action clear() {
        hdr.options[0].s.setInvalid();
        hdr.options[1].l.setInvalid();
        hdr.options[2].t.setInvalid();
    }
    action push_pop() {
        hdr.options.pop_front(1);
        hdr.options.push_front(2);
        hdr.options[2].l.setInvalid();
    }
    @name("operations")
    table operations {
        key = { hdr.request.code: exact; }
        actions = {
            push; push_more; push_all; pop; pop_more; pop_all; copy; copy_one; set; push_and_set;
            clear; push_pop;
        }
        const entries = {
            1: push(); 2: push_more(); 3: push_all(); 4: pop(); 5: pop_more(); 6: pop_all();
            7: copy(); 8: copy_one(); 9: set(); 10: push_and_set(); 11: clear(); 12: push_pop();
        }
        const default_action = push();
    }
    apply {
        if (standard.parser_error != error.NoError) {
            hdr.request.seen = hdr.request.seen | 128;
        }
        operations.apply();
        if (hdr.options[0].s.isValid()) { hdr.request.seen = hdr.request.seen | 1; }
        if (hdr.options[1].l.isValid()) { hdr.request.seen = hdr.request.seen | 2; }
        if (hdr.options[2].t.isValid()) { hdr.request.seen = hdr.request.seen | 4; }
        if (hdr.options[0] == hdr.options[1]) { hdr.request.seen = hdr.request.seen | 8; }
        if (hdr.options == hdr.others) { hdr.request.seen = hdr.request.seen | 16; }
        if (hdr.options[2].s.isValid() && hdr.options[2].s.value > 5) {
            hdr.request.seen = hdr.request.seen | 32;
        }
        standard.egress_spec = standard.ingress_port;
    }
}

control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.options);
        packet.emit(hdr.others);
    }
}

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
