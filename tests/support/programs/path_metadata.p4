// What standard metadata says in ingress and egress; of times only how they compare.

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  command;
    bit<16> first;  // which has to be 0x1234
    bit<32> parser_error;  // written by the ingress
    bit<32> length;
    bit<8>  checksum_error;
    bit<8>  kind;
    bit<32> length_behind;  // written by the egress: packet_length
    bit<8>  times;
}

header tag_t {
    bit<16> value;
}

error { WrongMark }

struct headers_t {
    probe_t probe;
    tag_t   tag;
}

struct metadata_t { }

parser PathMetadataParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.probe);
        verify(hdr.probe.first == 0x1234, error.WrongMark);
        transition select(hdr.probe.command[4:2]) {
            1: parse_tag;
            0: accept;
        }
    }

    state parse_tag {
        packet.extract(hdr.tag);
        transition accept;
    }
}

control PathMetadataIngress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard) {
    apply {
        if (!hdr.probe.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 2;
        hdr.probe.parser_error = (bit<32>)(standard.parser_error == error.NoError ? 32w0 : 32w1);
        if (standard.parser_error == error.PacketTooShort) { hdr.probe.parser_error = 2; }
        if (standard.parser_error == error.NoMatch) { hdr.probe.parser_error = 3; }
        if (standard.parser_error == error.WrongMark) { hdr.probe.parser_error = 4; }
        hdr.probe.length = standard.packet_length;
        hdr.probe.checksum_error = (bit<8>)standard.checksum_error;
        hdr.probe.kind = (bit<8>)standard.instance_type;
        standard.priority = hdr.probe.command[7:5];
        if (hdr.probe.command[0:0] == 1) {
            hdr.tag.setValid();
            hdr.tag.value = 5;
        }
        if (hdr.probe.command[1:1] == 1) { hdr.tag.setInvalid(); }
    }
}

control PathMetadataEgress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard) {
    apply {
        hdr.probe.length_behind = standard.packet_length;
        hdr.probe.times = 0;
        if (standard.egress_global_timestamp >= standard.ingress_global_timestamp) {
            hdr.probe.times[0:0] = 1;
        }
        if ((bit<48>)standard.enq_timestamp <= standard.egress_global_timestamp) {
            hdr.probe.times[1:1] = 1;
        }
        if ((bit<48>)standard.enq_timestamp >= standard.ingress_global_timestamp) {
            hdr.probe.times[2:2] = 1;
        }
        if (standard.deq_timedelta < 1000000) { hdr.probe.times[3:3] = 1; }
        if (standard.deq_qdepth == 0) { hdr.probe.times[4:4] = 1; }
        if (standard.enq_qdepth == 0) { hdr.probe.times[5:5] = 1; }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control PathMetadataDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
        packet.emit(hdr.tag);
    }
}

V1Switch(PathMetadataParser(), NoVerification(), PathMetadataIngress(), PathMetadataEgress(), NoUpdate(),
         PathMetadataDeparser()) main;
