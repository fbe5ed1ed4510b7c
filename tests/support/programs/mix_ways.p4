// Ways through a program: nested ifs, action_run, hit and miss, functions, direct calls, return, exit.

#include <core.p4>
#include <v1model.p4>

header given_t { bit<8> a; bit<8> b; bit<16> trace; bit<32> value; }
struct headers_t { given_t given; }
struct metadata_t { bit<16> depth; }

bit<32> larger(in bit<32> left, in bit<32> right) {
    if (left > right) {
        return left;
    }
    return right;
}

bit<16> step(inout bit<16> trace, in bit<4> number) {
    trace = trace << 4 | (bit<16>) number;
    return trace;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.given);
        transition accept;
    }
}

control Counted(inout given_t given, in bit<8> by) {
    apply {
        if (by == 0) {
            return;
        }
        given.value = given.value + (bit<32>) by;
    }
}

control Inward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("ways") counter(8, CounterType.packets) ways;
    Counted() counted;

    action one() { step(hdr.given.trace, 1); }
    action two(bit<8> value) {
        hdr.given.b = value;
        step(hdr.given.trace, 2);
    }
    action three(in bit<16> more, bit<16> given) {
        hdr.given.trace = more ^ given;
    }
    action leave() {
        standard.egress_spec = 3;
        exit;
    }
    action conditional(bit<8> limit) {
        if (hdr.given.a > limit) {
            hdr.given.value = larger(hdr.given.value, 1000);
            if (hdr.given.b > limit) {
                hdr.given.b = limit;
            } else {
                hdr.given.b = hdr.given.b + 1;
            }
        } else {
            hdr.given.a = limit;
        }
    }

    @name("first")
    table first {
        key = { hdr.given.a: exact; }
        actions = { one; two; leave; conditional; }
        default_action = conditional(100);
        size = 16;
    }
    @name("second")
    table second {
        key = { hdr.given.b: ternary; hdr.given.a: lpm; }
        actions = { one; two; three(hdr.given.trace); leave; NoAction; }
        default_action = NoAction;
        size = 16;
    }
    @name("second_again")
    table second_again {
        key = { hdr.given.a: ternary; hdr.given.b: lpm; }
        actions = { two; three(hdr.given.trace); leave; NoAction; }
        default_action = NoAction;
        size = 16;
    }
    @name("third")
    table third {
        actions = { two; NoAction; }
        default_action = NoAction;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
            exit;
        }
        standard.egress_spec = 1;
        switch (first.apply().action_run) {
            one: {
                if (second.apply().hit) {
                    ways.count(1);
                } else {
                    ways.count(2);
                    third.apply();
                }
            }
            two:
            conditional: {
                ways.count(3);
                counted.apply(hdr.given, hdr.given.b);
                switch (second_again.apply().action_run) {
                    NoAction: {
                        step(hdr.given.trace, 9);
                        return;
                    }
                    three: {
                        standard.egress_spec = 2;
                    }
                    default: {
                        hdr.given.value = larger(hdr.given.value, (bit<32>) hdr.given.trace);
                    }
                }
            }
            default: { ways.count(4); }
        }
        switch (hdr.given.b) {
            0: { step(hdr.given.trace, 10); }
            1:
            2: { step(hdr.given.trace, 11); }
            255: { exit; }
            default: { step(hdr.given.trace, 12); }
        }
        ways.count((bit<32>) hdr.given.b[2:0]);
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Outward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), Nothing(), Inward(), Outward(), Nothing(), D()) main;
