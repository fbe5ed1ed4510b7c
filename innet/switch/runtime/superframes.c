/* The cutting and joining of super-frames, as superframes.h describes them. */

#define _GNU_SOURCE
#include "superframes.h"

#include <endian.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

enum { TAG = 4, MOST_TAGS = 4, TYPE_AT = 12, SERVICE_TAG = 0x88a8 };
enum { IPV4_HEAD = 20, IPV6_HEAD = 40, UDP_HEAD = 8, TCP_HEAD = 20 };
enum { UDP_LENGTH = 4, UDP_CHECKSUM = 6 };
enum { TCP_SEQUENCE = 4, TCP_OFFSET = 12, TCP_FLAGS = 13, TCP_CHECKSUM = 16 };
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, URG = 32, CWR = 128 };
enum { FRAGMENT = 0x3fff }; /* "more fragments", and the fragment's offset */
enum { MOST_JOINED = 128, MOST_JOINED_BYTES = 65535 }; /* the kernel's limits */
enum { LEAST_MSS = 48 };                               /* Linux's least payload of a TCP segment */
enum { MOST_PARTS = MOST_JOINED_BYTES / LEAST_MSS + 1 };

/* ---- numbers in network order, and sums of 16-bit numbers -------------------------------------- */

static uint32_t get16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }

static void put16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static uint32_t get32(const uint8_t *p) { return get16(p) << 16 | get16(p + 2); }

static void put32(uint8_t *p, uint32_t value)
{
    put16(p, value >> 16);
    put16(p + 2, value);
}

static uint32_t folded(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint32_t)sum;
}

/* Returns the sum of big-endian 16-bit numbers, folded. RFC 1071: the sum of numbers with swapped bytes
 * is the sum with swapped bytes, so that words of any size can be added. */
static uint32_t sum_of(const uint8_t *p, uint32_t bytes)
{
    uint64_t sum = 0;
    uint32_t i = 0, word;
    for (; i + 4 <= bytes; i += 4) {
        memcpy(&word, p + i, 4);
        sum += word;
    }
    uint8_t rest[4] = {0};
    memcpy(rest, p + i, bytes - i);
    memcpy(&word, rest, 4);
    return be16toh((uint16_t)folded(sum + word));
}

static uint32_t pseudo_sum(const uint8_t *frame, const struct layout *layout)
{
    const uint8_t *network = frame + layout->network;
    uint32_t addresses = layout->version == 4 ? sum_of(network + 12, 8) : sum_of(network + 8, 32);
    return addresses + layout->protocol;
}

static uint32_t checksum_in(const struct layout *layout)
{
    return layout->transport + (layout->protocol == IPPROTO_UDP ? UDP_CHECKSUM : TCP_CHECKSUM);
}

/* As in the kernel, no checksum is 0, which means for UDP that there is none. */
uint16_t partial_checksum(const struct partial *partial)
{
    uint32_t sum = sum_of(partial->frame + partial->start, partial->bytes - partial->start);
    uint16_t checksum = (uint16_t)~sum;
    return checksum ? checksum : 0xffff;
}

void partial_complete(struct partial *partial)
{
    put16(partial->frame + partial->at, partial_checksum(partial));
    partial->at = 0;
}

/* ---- headers ----------------------------------------------------------------------------------- */

/* Returns where the packet inside of a frame begins, behind all VLAN tags, or 0 if it is cut short. */
static uint32_t network_of(const uint8_t *frame, uint32_t bytes, uint32_t *type)
{
    uint32_t at = TYPE_AT;
    for (uint32_t tags = 0; tags <= MOST_TAGS && at + 2 <= bytes; tags++, at += TAG) {
        *type = get16(frame + at);
        if (*type != ETHERTYPE_VLAN && *type != SERVICE_TAG)
            return at + 2;
    }
    return 0;
}

/* Finds the transport header behind the extension headers that do not hide it. */
static bool skip_extensions(const uint8_t *frame, uint32_t bytes, struct layout *layout)
{
    layout->protocol = frame[layout->network + 6];
    layout->transport = layout->network + IPV6_HEAD;
    while (layout->protocol == IPPROTO_HOPOPTS || layout->protocol == IPPROTO_ROUTING
           || layout->protocol == IPPROTO_DSTOPTS) {
        if (layout->transport + 8 > bytes)
            return false;
        layout->protocol = frame[layout->transport];
        layout->transport += 8 * (frame[layout->transport + 1] + 1u);
    }
    return true;
}

static bool find_transport(const uint8_t *frame, uint32_t bytes, struct layout *layout)
{
    uint32_t type = 0, network = network_of(frame, bytes, &type);
    layout->network = network;
    if (network && type == ETHERTYPE_IP && network + IPV4_HEAD <= bytes) {
        layout->version = 4;
        layout->protocol = frame[network + 9];
        layout->transport = network + 4 * (frame[network] & 15u);
        return frame[network] >> 4 == 4 && layout->transport >= network + IPV4_HEAD
               && !(get16(frame + network + 6) & FRAGMENT);
    }
    if (network && type == ETHERTYPE_IPV6 && network + IPV6_HEAD <= bytes) {
        layout->version = 6;
        return frame[network] >> 4 == 6 && skip_extensions(frame, bytes, layout);
    }
    return false;
}

/* Finds the headers of UDP or TCP over IP. Returns false if the frame has no such packet, or if the
 * packet is cut short, a fragment, or has no payload. */
static bool find_layout(const uint8_t *frame, uint32_t bytes, struct layout *layout)
{
    if (!find_transport(frame, bytes, layout))
        return false;
    uint32_t transport = layout->transport, size;
    if (layout->protocol == IPPROTO_UDP)
        size = UDP_HEAD;
    else if (layout->protocol == IPPROTO_TCP && transport + TCP_HEAD <= bytes)
        size = 4 * (frame[transport + TCP_OFFSET] >> 4);
    else
        return false;
    layout->head = transport + size;
    return (layout->protocol == IPPROTO_UDP || size >= TCP_HEAD) && layout->head < bytes
           && layout->head <= MOST_HEAD;
}

/* ---- cutting ----------------------------------------------------------------------------------- */

bool describe_partial(struct partial *frame, const struct virtio_net_hdr *about, uint32_t restored)
{
    frame->at = 0;
    if (!(about->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return true;
    uint32_t start = le16toh(about->csum_start) + restored;
    uint32_t at = start + le16toh(about->csum_offset);
    if (start < ETHER_HDR_LEN || at + 2 > frame->bytes)
        return false;
    frame->start = start;
    frame->at = at;
    return true;
}

static bool is_of_type(const struct layout *layout, uint8_t type)
{
    switch (type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        return layout->protocol == IPPROTO_UDP;
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return layout->protocol == IPPROTO_TCP && layout->version == 4;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        return layout->protocol == IPPROTO_TCP && layout->version == 6;
    default:
        return false;
    }
}

bool cut_begin(struct cut *cut, uint8_t *frame, uint32_t bytes, const struct virtio_net_hdr *about,
               uint32_t restored)
{
    struct layout *layout = &cut->layout;
    struct partial partial = {.frame = frame, .bytes = bytes};
    cut->frame = frame;
    cut->bytes = bytes;
    cut->next = 0;
    cut->size = le16toh(about->gso_size);
    /* Of a packet in a tunnel, the kernel describes the inner headers. */
    if (!cut->size || !find_layout(frame, bytes, layout) || !is_of_type(layout, about->gso_type)
        || !describe_partial(&partial, about, restored)
        || (partial.at
            && (partial.start != layout->transport || partial.at != checksum_in(layout))))
        return false;
    /* One super-frame of tiny segments must not keep all other frames waiting. */
    if ((bytes - layout->head - 1) / cut->size >= MOST_PARTS)
        return false;
    memcpy(cut->head, frame, layout->head);
    uint8_t *network = cut->head + layout->network, *transport = cut->head + layout->transport;
    /* The sum of the pseudo-header is the kernel's, without the length. Its own may be about other
     * addresses: those behind a routing header. */
    cut->pseudo_sum = partial.at
                          ? get16(frame + partial.at) + 0xffff - folded(bytes - layout->transport)
                          : pseudo_sum(frame, layout);
    if (layout->protocol == IPPROTO_TCP)
        cut->sequence = get32(transport + TCP_SEQUENCE);
    if (layout->version == 4) {
        cut->id = (uint16_t)get16(network + 4);
        put32(network + 2, 0); /* length and identification */
        put16(network + 10, 0);
        cut->header_sum = sum_of(network, layout->transport - layout->network);
    }
    return true;
}

/* The first byte of a segment's headers is `size` bytes behind that of the segment before, because
 * its payload is. */
bool cut_next(struct cut *cut, struct partial *segment)
{
    const struct layout *layout = &cut->layout;
    uint32_t skipped = cut->next * cut->size, whole = cut->bytes - layout->head;
    if (skipped >= whole)
        return false;
    uint32_t left = whole - skipped, payload = left < cut->size ? left : cut->size;
    uint8_t *frame = cut->frame + skipped;
    uint8_t *network = frame + layout->network, *transport = frame + layout->transport;
    uint32_t bytes = layout->head + payload, length = bytes - layout->transport;
    memcpy(frame, cut->head, layout->head);
    if (layout->version == 4) {
        uint32_t total = bytes - layout->network, id = (uint16_t)(cut->id + cut->next);
        put16(network + 2, total);
        put16(network + 4, id);
        put16(network + 10, ~folded((uint64_t)cut->header_sum + total + id));
    } else {
        put16(network + 4, bytes - layout->network - IPV6_HEAD);
    }
    if (layout->protocol == IPPROTO_UDP) {
        put16(transport + UDP_LENGTH, length);
    } else {
        put32(transport + TCP_SEQUENCE, cut->sequence + skipped);
        if (left > payload)
            transport[TCP_FLAGS] &= (uint8_t)~(FIN | PSH);
        if (cut->next)
            transport[TCP_FLAGS] &= (uint8_t)~CWR;
    }
    uint32_t at = checksum_in(layout);
    put16(frame + at, folded((uint64_t)cut->pseudo_sum + length));
    *segment = (struct partial){frame, bytes, layout->transport, at};
    cut->next++;
    return true;
}

uint32_t cut_peek(const struct cut *cut, uint32_t ahead, uint8_t *room, uint32_t most)
{
    uint32_t head = cut->layout.head, skipped = (cut->next + ahead) * cut->size;
    if (skipped >= cut->bytes - head || head >= most)
        return 0;
    uint32_t payload = cut->bytes - head - skipped;
    payload = payload < cut->size ? payload : cut->size;
    payload = payload < most - head ? payload : most - head;
    memcpy(room, cut->head, head);
    memcpy(room + head, cut->frame + head + skipped, payload);
    return head + payload;
}

/* ---- joining ----------------------------------------------------------------------------------- */

/* Returns whether the lengths in the headers are those of the frame, and the header's checksum fits. */
static bool is_whole(const uint8_t *frame, uint32_t bytes, const struct layout *layout)
{
    const uint8_t *network = frame + layout->network, *transport = frame + layout->transport;
    uint32_t length = bytes - layout->transport;
    if (layout->protocol == IPPROTO_UDP && get16(transport + UDP_LENGTH) != length)
        return false;
    if (layout->version == 6)
        return layout->transport == layout->network + IPV6_HEAD
               && get16(network + 4) == bytes - layout->network - IPV6_HEAD;
    return get16(network + 2) == bytes - layout->network
           && sum_of(network, layout->transport - layout->network) == 0xffff;
}

/* The checksum of a frame that joins others has to be computed by the kernel: it is partial, or it is
 * the zero that stands for no checksum of UDP over IPv4. */
static bool has_open_checksum(const uint8_t *frame, const struct layout *layout,
                              const struct partial *partial)
{
    uint32_t at = checksum_in(layout);
    if (partial->at)
        return partial->at == at && partial->start == layout->transport;
    return layout->protocol == IPPROTO_UDP && layout->version == 4 && !get16(frame + at);
}

/* As the kernel does, this allows one tag more than the link's MTU. */
static bool fits_link(uint32_t bytes, const struct layout *layout, uint32_t mtu)
{
    bool is_tagged = layout->network > ETHER_HDR_LEN;
    return bytes <= mtu + ETHER_HDR_LEN + (is_tagged ? TAG : 0);
}

void train_begin(struct train *train, const uint8_t *frame, uint32_t bytes,
                 const struct partial *partial, uint32_t mtu)
{
    struct layout *layout = &train->layout;
    train->count = 1;
    train->bytes = bytes;
    train->partial = *partial;
    train->last_flags = 0;
    train->is_open = find_layout(frame, bytes, layout) && fits_link(bytes, layout, mtu)
                     && is_whole(frame, bytes, layout) && has_open_checksum(frame, layout, partial);
    if (!train->is_open)
        return;
    train->size = bytes - layout->head;
    if (layout->protocol == IPPROTO_TCP) {
        uint8_t flags = frame[layout->transport + TCP_FLAGS];
        train->last_flags = flags & (FIN | PSH);
        train->is_open = !(flags & (SYN | RST | URG | FIN | PSH));
    }
}

static bool same(const uint8_t *a, const uint8_t *b, uint32_t from, uint32_t to)
{
    return !memcmp(a + from, b + from, to - from);
}

/* Returns the sum of what differs among the headers of segments. Of two headers with the same sum, both
 * have valid checksums or none has. */
static uint32_t changing(const uint8_t *network)
{
    return (get16(network + 2) + get16(network + 4) + get16(network + 10)) % 0xffff;
}

static bool same_network(const struct train *train, const uint8_t *a, const uint8_t *b,
                         uint32_t bytes)
{
    const struct layout *layout = &train->layout;
    uint32_t length = bytes - layout->network, head = layout->transport - layout->network;
    if (!same(a, b, 0, layout->network))
        return false;
    a += layout->network;
    b += layout->network;
    if (layout->version == 6)
        return same(a, b, 0, 4) && get16(b + 4) == length - IPV6_HEAD && same(a, b, 6, head);
    return same(a, b, 0, 2) && get16(b + 2) == length && same(a, b, 6, 10) && same(a, b, 12, head)
           && changing(a) == changing(b);
}

/* Segments of TCP follow each other in their sequence and their identification. Only the first may say
 * that its window was reduced, and only the last that data are to be passed on, or that they end. */
static bool same_transport(const struct train *train, const uint8_t *a, const uint8_t *b,
                           uint32_t bytes)
{
    const struct layout *layout = &train->layout;
    uint32_t head = layout->head - layout->transport, count = train->count;
    uint32_t id = get16(a + layout->network + 4), next_id = get16(b + layout->network + 4);
    a += layout->transport;
    b += layout->transport;
    if (layout->protocol == IPPROTO_UDP)
        return same(a, b, 0, UDP_LENGTH) && get16(b + UDP_LENGTH) == bytes - layout->transport;
    uint8_t flags = a[TCP_FLAGS] & (uint8_t)~CWR, next = b[TCP_FLAGS];
    return same(a, b, 0, TCP_SEQUENCE)
           && get32(b + TCP_SEQUENCE) == get32(a + TCP_SEQUENCE) + count * train->size
           && (layout->version == 6 || next_id == (uint16_t)(id + count))
           && same(a, b, TCP_SEQUENCE + 4, TCP_FLAGS) && flags == (next & ~(FIN | PSH))
           && same(a, b, TCP_FLAGS + 1, TCP_CHECKSUM) && same(a, b, TCP_CHECKSUM + 2, head);
}

bool train_join(struct train *train, const uint8_t *first, const uint8_t *frame, uint32_t bytes,
                const struct partial *partial)
{
    const struct layout *layout = &train->layout;
    if (!train->is_open || bytes <= layout->head || bytes - layout->head > train->size
        || train->count == MOST_JOINED || train->bytes + bytes - layout->head > MOST_JOINED_BYTES
        || !same_network(train, first, frame, bytes) || !same_transport(train, first, frame, bytes)
        || !has_open_checksum(frame, layout, partial))
        return false;
    uint32_t size = bytes - layout->head;
    train->count++;
    train->bytes += size;
    if (layout->protocol == IPPROTO_TCP)
        train->last_flags = frame[layout->transport + TCP_FLAGS] & (FIN | PSH);
    train->is_open = size == train->size && !train->last_flags;
    return true;
}

void train_describe(const struct train *train, uint8_t *frame, struct virtio_net_hdr *about)
{
    memset(about, 0, sizeof *about);
    const struct partial *partial = &train->partial;
    if (train->count == 1) {
        if (partial->at) {
            about->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
            about->csum_start = htole16((uint16_t)partial->start);
            about->csum_offset = htole16((uint16_t)(partial->at - partial->start));
        }
        return;
    }
    const struct layout *layout = &train->layout;
    uint8_t *network = frame + layout->network, *transport = frame + layout->transport;
    uint32_t length = train->bytes - layout->transport, at = checksum_in(layout);
    if (layout->version == 4) {
        put16(network + 2, train->bytes - layout->network);
        put16(network + 10, 0);
        put16(network + 10, ~sum_of(network, layout->transport - layout->network));
        about->gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
    } else {
        put16(network + 4, train->bytes - layout->network - IPV6_HEAD);
        about->gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
    }
    if (layout->protocol == IPPROTO_UDP) {
        put16(transport + UDP_LENGTH, length);
        about->gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
    } else {
        transport[TCP_FLAGS] |= train->last_flags;
        if (transport[TCP_FLAGS] & CWR)
            about->gso_type |= VIRTIO_NET_HDR_GSO_ECN;
    }
    put16(frame + at, folded((uint64_t)pseudo_sum(frame, layout) + length));
    about->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    about->gso_size = htole16((uint16_t)train->size);
    about->hdr_len = htole16((uint16_t)layout->head);
    about->csum_start = htole16((uint16_t)layout->transport);
    about->csum_offset = htole16((uint16_t)(at - layout->transport));
}
