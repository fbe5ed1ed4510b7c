/* Loops that send every frame of some interfaces back, for a comparison of the kernel's interfaces.
 * They do nothing else, so they show what a switch could reach at most. */

#define _GNU_SOURCE
#include "xdp.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_PORTS = 16, BATCH = 16, FRAME = 2048, BLOCK = 1 << 16, BLOCKS = 32, SLOTS = 512 };
enum { BUFFER = 8 << 20, XDP_BATCH = 64 };

static void check(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(1);
    }
}

static void set(int socket, int level, int option, int value)
{
    check(!setsockopt(socket, level, option, &value, sizeof value), "setsockopt");
}

static int packet_socket(void)
{
    int made = socket(AF_PACKET, SOCK_RAW, 0);
    check(made >= 0, "socket");
    set(made, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    set(made, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER);
    set(made, SOL_SOCKET, SO_SNDBUFFORCE, BUFFER);
    return made;
}

static void bind_to(int socket, const char *interface, int protocol)
{
    struct sockaddr_ll where = {.sll_family = AF_PACKET,
                                .sll_protocol = htons((uint16_t)protocol),
                                .sll_ifindex = (int)if_nametoindex(interface)};
    check(!bind(socket, (struct sockaddr *)&where, sizeof where), interface);
}

typedef void reflect(uint32_t port);

static void run(const struct pollfd *files, uint32_t count, reflect *port)
{
    struct pollfd ready[MOST_PORTS];
    puts("ready");
    fflush(stdout);
    for (;;) {
        memcpy(ready, files, count * sizeof *files);
        poll(ready, count, -1);
        for (uint32_t i = 0; i < count; i++)
            if (ready[i].revents)
                port(i);
    }
}

static struct pollfd sockets[MOST_PORTS];

/* ---- packet sockets, recvmmsg and sendmmsg ----------------------------------------------------- */

static void reflect_messages(uint32_t port)
{
    static uint8_t frames[BATCH][FRAME];
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH];
    for (int i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){frames[i], FRAME};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
    }
    int count = recvmmsg(sockets[port].fd, messages, BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < count; i++)
        vectors[i].iov_len = messages[i].msg_len;
    for (int sent = 0; sent < count;) {
        int more = sendmmsg(sockets[port].fd, messages + sent, (unsigned)(count - sent), 0);
        sent += more > 0 ? more : 1;
    }
}

void reflect_recvmmsg(const char *const *interfaces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sockets[i] = (struct pollfd){.fd = packet_socket(), .events = POLLIN};
        bind_to(sockets[i].fd, interfaces[i], ETH_P_ALL);
    }
    run(sockets, count, reflect_messages);
}

/* ---- packet sockets with super-frames ---------------------------------------------------------- */

enum { SUPER_FRAME = 1 << 17, IPV4_ADDRESSES = 26, UDP_PORTS = 34 };

static void swap(uint8_t *p, size_t bytes)
{
    uint8_t kept[8];
    memcpy(kept, p, bytes);
    memcpy(p, p + bytes, bytes);
    memcpy(p + bytes, kept, bytes);
}

/* The frame goes back to the socket that it comes from. Its checksum stays right, and uncomputed. */
static void reflect_super_frame(uint32_t port)
{
    static uint8_t message[SUPER_FRAME];
    uint8_t *frame = message + sizeof(struct virtio_net_hdr);
    ssize_t bytes;
    while ((bytes = recv(sockets[port].fd, message, sizeof message, MSG_DONTWAIT)) > 0) {
        swap(frame, ETH_ALEN);
        swap(frame + IPV4_ADDRESSES, 4);
        swap(frame + UDP_PORTS, 2);
        check(send(sockets[port].fd, message, (size_t)bytes, 0) == bytes, "send");
    }
}

void reflect_super_frames(const char *const *interfaces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sockets[i] = (struct pollfd){.fd = packet_socket(), .events = POLLIN};
        set(sockets[i].fd, SOL_PACKET, PACKET_VNET_HDR, 1);
        bind_to(sockets[i].fd, interfaces[i], ETH_P_IP);
    }
    run(sockets, count, reflect_super_frame);
}

/* ---- packet sockets with rings of mapped memory ------------------------------------------------ */

static struct rings {
    int out;
    uint8_t *received, *sent;
    uint32_t block, slot;
} rings[MOST_PORTS];

static uint8_t *map(int socket, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, 0);
    check(memory != MAP_FAILED, "mmap");
    return memory;
}

static void open_rings(uint32_t port, const char *interface)
{
    struct rings *ring = &rings[port];
    struct tpacket_req3 in = {.tp_block_size = BLOCK,
                              .tp_block_nr = BLOCKS,
                              .tp_frame_size = FRAME,
                              .tp_frame_nr = BLOCK / FRAME * BLOCKS,
                              .tp_retire_blk_tov = 1};
    struct tpacket_req out = {BLOCK, SLOTS * FRAME / BLOCK, FRAME, SLOTS};
    sockets[port] = (struct pollfd){.fd = packet_socket(), .events = POLLIN};
    set(sockets[port].fd, SOL_PACKET, PACKET_VERSION, TPACKET_V3);
    check(!setsockopt(sockets[port].fd, SOL_PACKET, PACKET_RX_RING, &in, sizeof in), "ring");
    ring->out = packet_socket();
    set(ring->out, SOL_PACKET, PACKET_VERSION, TPACKET_V2);
    set(ring->out, SOL_PACKET, PACKET_QDISC_BYPASS, 1);
    check(!setsockopt(ring->out, SOL_PACKET, PACKET_TX_RING, &out, sizeof out), "ring");
    ring->received = map(sockets[port].fd, (size_t)BLOCK * BLOCKS);
    ring->sent = map(ring->out, (size_t)FRAME * SLOTS);
    bind_to(ring->out, interface, 0);
    bind_to(sockets[port].fd, interface, ETH_P_ALL);
}

static void put_frame(struct rings *ring, const uint8_t *frame, uint32_t bytes)
{
    struct tpacket2_hdr *slot = (void *)(ring->sent + (size_t)ring->slot * FRAME);
    if (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
        return;
    memcpy((uint8_t *)slot + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll), frame, bytes);
    slot->tp_len = bytes;
    __atomic_store_n(&slot->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
    ring->slot = (ring->slot + 1) % SLOTS;
}

static void reflect_blocks(uint32_t port)
{
    struct rings *ring = &rings[port];
    for (;;) {
        struct tpacket_block_desc *block = (void *)(ring->received + (size_t)ring->block * BLOCK);
        struct tpacket_hdr_v1 *about = &block->hdr.bh1;
        if (!(__atomic_load_n(&about->block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return;
        uint8_t *at = (uint8_t *)block + about->offset_to_first_pkt;
        for (uint32_t i = 0; i < about->num_pkts; i++) {
            const struct tpacket3_hdr *frame = (void *)at;
            put_frame(ring, at + frame->tp_mac, frame->tp_snaplen);
            at += frame->tp_next_offset;
        }
        send(ring->out, NULL, 0, MSG_DONTWAIT);
        __atomic_store_n(&about->block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        ring->block = (ring->block + 1) % BLOCKS;
    }
}

void reflect_tpacket(const char *const *interfaces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        open_rings(i, interfaces[i]);
    run(sockets, count, reflect_blocks);
}

/* ---- AF_XDP ------------------------------------------------------------------------------------ */

static struct xdp_port *ports[MOST_PORTS];

static void reflect_chunks(uint32_t port)
{
    struct xdp *xdp = ports[port]->now;
    struct xdp_queue *queue = &xdp->queues[0];
    uint32_t count = xdp_look(queue, XDP_BATCH);
    for (uint32_t i = 0; i < count; i++) {
        struct xdp_desc frame = xdp_frame(queue, i);
        uint8_t *room = xdp_room(xdp, frame.len);
        if (!room)
            break;
        memcpy(room, queue->chunks + frame.addr, frame.len);
        xdp_queue(xdp, frame.len);
    }
    xdp_release(queue, count);
    xdp_push(xdp);
}

void reflect_af_xdp(const char *const *interfaces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ports[i] = xdp_create();
        const char *reason = xdp_open(ports[i], if_nametoindex(interfaces[i]), 1, true);
        if (reason) {
            fprintf(stderr, "%s: %s\n", interfaces[i], reason);
            exit(1);
        }
        xdp_take_next(ports[i]);
        sockets[i] = (struct pollfd){.fd = ports[i]->now->queues[0].socket, .events = POLLIN};
    }
    run(sockets, count, reflect_chunks);
}

/* ---- a program in XDP -------------------------------------------------------------------------- */

static int bpf(enum bpf_cmd command, union bpf_attr *about)
{
    return (int)syscall(SYS_bpf, command, about, sizeof *about);
}

static void attach(const char *interface, int verdict)
{
    struct bpf_insn program[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = verdict},
                                 {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr about = {.prog_type = BPF_PROG_TYPE_XDP,
                            .expected_attach_type = BPF_XDP,
                            .license = (uintptr_t)"GPL",
                            .insns = (uintptr_t)program,
                            .insn_cnt = 2};
    int loaded = bpf(BPF_PROG_LOAD, &about);
    union bpf_attr link = {.link_create = {.prog_fd = (uint32_t)loaded,
                                           .target_ifindex = if_nametoindex(interface),
                                           .attach_type = BPF_XDP,
                                           .flags = XDP_FLAGS_DRV_MODE}};
    check(loaded >= 0 && bpf(BPF_LINK_CREATE, &link) >= 0, interface);
}

static void attach_all(const char *const *interfaces, uint32_t count, int verdict)
{
    for (uint32_t i = 0; i < count; i++)
        attach(interfaces[i], verdict);
    run(sockets, 0, NULL);
}

void reflect_program(const char *const *interfaces, uint32_t count)
{
    attach_all(interfaces, count, XDP_TX);
}

/* A veth takes frames that a program at the other end reflects only if it has a program, too. */
void reflect_nothing(const char *const *interfaces, uint32_t count)
{
    attach_all(interfaces, count, XDP_PASS);
}
