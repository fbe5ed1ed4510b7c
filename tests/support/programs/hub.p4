// Every frame to every port but its own; each copy is tagged with the instance that it is.
//
// A frame that comes with a tag loses it, and goes where the tag says.

#include <core.p4>
#include <v1model.p4>

const bit<16> TAGGED = 0x88b6;
const bit<16> EVERYBODY = 1;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header tag_t {
    bit<16> instance;
    bit<7>  padding;
    bit<9>  port;
    bit<16> ether_type;
}

struct headers_t {
    ethernet_t ethernet;
    tag_t      tag;
}

struct metadata_t { }

parser HubParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard) {
    state start {
        // The type stands behind two addresses.
        transition select(packet.lookahead<bit<112>>()[15:0]) {
            TAGGED: parse_tagged;
            default: parse_plain;
        }
    }

    state parse_tagged {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.tag);
        transition accept;
    }

    state parse_plain {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control HubIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    apply {
        if (standard.parser_error != error.NoError) {
            mark_to_drop(standard);
        } else if (hdr.tag.isValid()) {
            standard.egress_spec = hdr.tag.port;
            hdr.ethernet.ether_type = hdr.tag.ether_type;
            hdr.tag.setInvalid();
        } else {
            standard.mcast_grp = EVERYBODY;
        }
    }
}

control HubEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    apply {
        if (standard.egress_rid != 0) {
            if (standard.egress_port == standard.ingress_port) {
                mark_to_drop(standard);
            } else {
                hdr.tag.setValid();
                hdr.tag.instance = standard.egress_rid;
                hdr.tag.port = standard.ingress_port;
                hdr.tag.ether_type = hdr.ethernet.ether_type;
                hdr.ethernet.ether_type = TAGGED;
            }
        }
    }
}

control NoVerification(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }

control HubDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.tag);
    }
}

V1Switch(HubParser(), NoVerification(), HubIngress(), HubEgress(), NoUpdate(),
         HubDeparser()) main;
