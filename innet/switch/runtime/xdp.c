/* Network interfaces through AF_XDP, as xdp.h describes it, with system calls and no library. */

#define _GNU_SOURCE
#include "xdp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/if_link.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SEND_BUFFER = 8 << 20 };
enum { DEVICE_BOUND = 1 << 6 }; /* BPF_F_XDP_DEV_BOUND_ONLY, from Linux 6.3 on */
enum { KERNEL_FUNCTION = 2 };   /* BPF_PSEUDO_KFUNC_CALL */

#define NEEDS "it needs root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"

/* ---- the program ------------------------------------------------------------------------------- */

static int bpf(enum bpf_cmd command, union bpf_attr *about)
{
    return (int)syscall(SYS_bpf, command, about, sizeof *about);
}

static uint64_t address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* Returns how many bytes follow the first 12 of a type in the kernel's description of its types. */
static size_t type_details(const struct btf_type *type)
{
    uint32_t members = BTF_INFO_VLEN(type->info);
    switch (BTF_INFO_KIND(type->info)) {
    case BTF_KIND_INT:
    case 14: /* BTF_KIND_VAR */
    case 17: /* BTF_KIND_DECL_TAG */
        return 4;
    case BTF_KIND_ARRAY:
        return sizeof(struct btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
    case 15: /* BTF_KIND_DATASEC */
    case 19: /* BTF_KIND_ENUM64 */
        return members * 12ul;
    case BTF_KIND_ENUM:
    case 13: /* BTF_KIND_FUNC_PROTO */
        return members * 8ul;
    default:
        return 0;
    }
}

static int find_function(const uint8_t *types, size_t bytes, const char *name)
{
    const struct btf_header *header = (const void *)types;
    if (bytes < sizeof *header || header->magic != BTF_MAGIC)
        return 0;
    const uint8_t *at = types + header->hdr_len + header->type_off, *end = at + header->type_len;
    const char *names = (const char *)types + header->hdr_len + header->str_off;
    for (int number = 1; at < end; number++) {
        const struct btf_type *type = (const void *)at;
        if (BTF_INFO_KIND(type->info) == 12 /* BTF_KIND_FUNC */
            && !strcmp(names + type->name_off, name))
            return number;
        at += sizeof *type + type_details(type);
    }
    return 0;
}

/* Returns the number of a function of the kernel that programs can call, or 0. */
static int kernel_function(const char *name)
{
    int file = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC), found = 0;
    struct stat about;
    if (file < 0)
        return 0;
    if (!fstat(file, &about)) {
        uint8_t *types = malloc((size_t)about.st_size);
        size_t have = 0;
        ssize_t got = 1;
        while (types && got > 0 && have < (size_t)about.st_size) {
            got = read(file, types + have, (size_t)about.st_size - have);
            have += got > 0 ? (size_t)got : 0;
        }
        if (have == (size_t)about.st_size)
            found = find_function(types, have, name);
        free(types);
    }
    close(file);
    return found;
}

static int make_map(void)
{
    union bpf_attr about = {.map_type = BPF_MAP_TYPE_XSKMAP,
                            .key_size = sizeof(uint32_t),
                            .value_size = sizeof(int),
                            .max_entries = XDP_MOST_QUEUES};
    return bpf(BPF_MAP_CREATE, &about);
}

#define MOVE(to, from) {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to, .src_reg = from}
#define SET(to, value) {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to, .imm = value}
#define ADD(to, value) {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = to, .imm = value}
#define CALL(how, function) {.code = BPF_JMP | BPF_CALL, .src_reg = how, .imm = function}
#define EXIT {.code = BPF_JMP | BPF_EXIT}
#define STACK(to, at) MOVE(to, BPF_REG_10), ADD(to, at)

/* The program passes a frame to the socket of its queue. Frames whose VLAN tag the driver has taken out
 * go the usual way, to the packet socket, which sees the tag. Only a function of the driver can tell.
 * Without it, the first part of the program is left out. */
static int load_program(int map, uint32_t interface, int tag_function)
{
    enum { TAG_PART = 11, QUEUE = offsetof(struct xdp_md, rx_queue_index) };
    struct bpf_insn program[] = {
        MOVE(BPF_REG_6, BPF_REG_1),
        {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -8},
        STACK(BPF_REG_2, -8),
        STACK(BPF_REG_3, -4),
        CALL(KERNEL_FUNCTION, tag_function),
        {.code = BPF_JMP32 | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 2, .imm = -ENODATA},
        SET(BPF_REG_0, XDP_PASS),
        EXIT,
        MOVE(BPF_REG_1, BPF_REG_6),
        /* from here on without a tag */
        {.code = BPF_LDX | BPF_MEM | BPF_W,
         .dst_reg = BPF_REG_2,
         .src_reg = BPF_REG_1,
         .off = QUEUE},
        {.code = BPF_LD | BPF_DW | BPF_IMM,
         .dst_reg = BPF_REG_1,
         .src_reg = BPF_PSEUDO_MAP_FD,
         .imm = map},
        {0},
        SET(BPF_REG_3, XDP_PASS), /* without a socket, too */
        CALL(0, BPF_FUNC_redirect_map),
        EXIT,
    };
    uint32_t skipped = tag_function ? 0 : TAG_PART;
    union bpf_attr about = {.prog_type = BPF_PROG_TYPE_XDP,
                            .expected_attach_type = BPF_XDP,
                            .license = address("GPL"),
                            .insns = address(program + skipped),
                            .insn_cnt = sizeof program / sizeof *program - skipped};
    if (tag_function) {
        about.prog_flags = DEVICE_BOUND;
        about.prog_ifindex = interface;
    }
    return bpf(BPF_PROG_LOAD, &about);
}

static int attach(int program, uint32_t interface)
{
    union bpf_attr about = {.link_create = {.prog_fd = (uint32_t)program,
                                            .target_ifindex = interface,
                                            .attach_type = BPF_XDP,
                                            .flags = XDP_FLAGS_DRV_MODE}};
    return bpf(BPF_LINK_CREATE, &about);
}

static const char *attach_reason(void)
{
    switch (errno) {
    case EBUSY:
    case EEXIST:
        return "it has an XDP program already";
    case EOPNOTSUPP:
    case EINVAL:
        return "its driver does not run XDP programs";
    case ERANGE:
        return "its MTU, or its peer's, is too large for XDP";
    default:
        return strerror(errno);
    }
}

/* Attaches the program for as long as the link is open. */
static const char *attach_program(struct xdp *xdp, int map, uint32_t interface, bool tags_seen)
{
    int tag_function = tags_seen ? 0 : kernel_function("bpf_xdp_metadata_rx_vlan_tag");
    const char *hidden = "its driver hides VLAN tags from XDP (`ethtool -K` with `rxvlan off`)";
    if (!tags_seen && !tag_function)
        return hidden;
    int program = load_program(map, interface, tag_function);
    if (program < 0)
        return errno == EPERM ? NEEDS : tags_seen ? strerror(errno) : hidden;
    xdp->link = attach(program, interface);
    const char *reason = xdp->link < 0 ? attach_reason() : NULL;
    close(program);
    return reason;
}

/* ---- the sockets ------------------------------------------------------------------------------- */

static bool set_size(int socket, int option, int entries)
{
    return !setsockopt(socket, SOL_XDP, option, &entries, sizeof entries);
}

static bool map_ring(struct xdp_ring *ring, int socket, const struct xdp_ring_offset *at,
                     size_t entry, off_t which)
{
    ring->bytes = at->desc + XDP_CHUNKS * entry;
    ring->memory =
        mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, which);
    if (ring->memory == MAP_FAILED) {
        ring->memory = NULL;
        return false;
    }
    uint8_t *start = ring->memory;
    ring->producer = (uint32_t *)(start + at->producer);
    ring->consumer = (uint32_t *)(start + at->consumer);
    ring->flags = (uint32_t *)(start + at->flags);
    ring->entries = start + at->desc;
    return true;
}

static bool map_rings(struct xdp_queue *queue)
{
    struct xdp_mmap_offsets at;
    socklen_t size = sizeof at;
    int socket = queue->socket;
    const size_t chunk = sizeof(uint64_t), frame = sizeof(struct xdp_desc);
    return !getsockopt(socket, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size) && size == sizeof at
           && map_ring(&queue->fill, socket, &at.fr, chunk, (off_t)XDP_UMEM_PGOFF_FILL_RING)
           && map_ring(&queue->completed, socket, &at.cr, chunk,
                       (off_t)XDP_UMEM_PGOFF_COMPLETION_RING)
           && map_ring(&queue->received, socket, &at.rx, frame, (off_t)XDP_PGOFF_RX_RING)
           && map_ring(&queue->sent, socket, &at.tx, frame, (off_t)XDP_PGOFF_TX_RING);
}

static size_t memory_bytes(bool sends) { return (size_t)XDP_CHUNK * XDP_CHUNKS * (sends ? 2 : 1); }

static bool share_memory(struct xdp_queue *queue, bool sends)
{
    size_t bytes = memory_bytes(sends);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    queue->chunks = memory;
    struct xdp_umem_reg about = {.addr = address(memory), .len = bytes, .chunk_size = XDP_CHUNK};
    return !setsockopt(queue->socket, SOL_XDP, XDP_UMEM_REG, &about, sizeof about);
}

static void give_all(struct xdp_queue *queue)
{
    uint64_t *chunks = queue->fill.entries;
    for (uint32_t i = 0; i < XDP_CHUNKS; i++)
        chunks[i] = (uint64_t)i * XDP_CHUNK;
    queue->fill.place = XDP_CHUNKS;
    __atomic_store_n(queue->fill.producer, queue->fill.place, __ATOMIC_RELEASE);
}

/* Without further flags, the kernel uses zero-copy mode if the driver has it. */
static bool bind_queue(const struct xdp_queue *queue, uint32_t interface, uint32_t number)
{
    struct sockaddr_xdp where = {.sxdp_family = AF_XDP,
                                 .sxdp_flags = XDP_USE_NEED_WAKEUP,
                                 .sxdp_ifindex = interface,
                                 .sxdp_queue_id = number};
    return !bind(queue->socket, (struct sockaddr *)&where, sizeof where);
}

static bool register_queue(const struct xdp_queue *queue, int map, uint32_t number)
{
    union bpf_attr about = {
        .map_fd = (uint32_t)map, .key = address(&number), .value = address(&queue->socket)};
    return !bpf(BPF_MAP_UPDATE_ELEM, &about);
}

static const char *open_queue(struct xdp_queue *queue, uint32_t interface, uint32_t number, int map)
{
    int buffer = SEND_BUFFER;
    queue->socket = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (queue->socket < 0)
        return errno == EAFNOSUPPORT ? "the kernel has no AF_XDP" : strerror(errno);
    setsockopt(queue->socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    if (!share_memory(queue, !number))
        return "there is no memory for it: see `ulimit -l`";
    if (!set_size(queue->socket, XDP_UMEM_FILL_RING, XDP_CHUNKS)
        || !set_size(queue->socket, XDP_UMEM_COMPLETION_RING, XDP_CHUNKS)
        || !set_size(queue->socket, XDP_RX_RING, XDP_CHUNKS)
        || !set_size(queue->socket, XDP_TX_RING, XDP_CHUNKS) || !map_rings(queue))
        return strerror(errno);
    give_all(queue);
    if (!bind_queue(queue, interface, number))
        return errno == EBUSY ? "another process has an AF_XDP socket on it" : strerror(errno);
    return register_queue(queue, map, number) ? NULL : strerror(errno);
}

static void close_file(int file)
{
    if (file >= 0)
        close(file);
}

static void unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

static void close_sockets(struct xdp *xdp)
{
    if (!xdp)
        return;
    close_file(xdp->link); /* first, so that no frame is sent to a socket that is gone */
    for (uint32_t i = 0; i < xdp->count; i++) {
        struct xdp_queue *queue = &xdp->queues[i];
        close_file(queue->socket);
        unmap(queue->fill.memory, queue->fill.bytes);
        unmap(queue->completed.memory, queue->completed.bytes);
        unmap(queue->received.memory, queue->received.bytes);
        unmap(queue->sent.memory, queue->sent.bytes);
        unmap(queue->chunks, memory_bytes(!i));
    }
    free(xdp->free_chunks);
    free(xdp);
}

static struct xdp *make_sockets(uint32_t queues)
{
    struct xdp *xdp = calloc(1, sizeof *xdp);
    if (!xdp)
        return NULL;
    xdp->link = -1;
    xdp->count = queues;
    for (uint32_t i = 0; i < queues; i++)
        xdp->queues[i].socket = -1;
    xdp->free_chunks = calloc(XDP_CHUNKS, sizeof *xdp->free_chunks);
    for (uint32_t i = 0; xdp->free_chunks && i < XDP_CHUNKS; i++)
        xdp->free_chunks[xdp->free++] = (uint64_t)(XDP_CHUNKS + i) * XDP_CHUNK;
    return xdp;
}

static const char *open_sockets(struct xdp *xdp, uint32_t interface, bool tags_seen)
{
    int map = make_map();
    if (map < 0)
        return errno == EPERM ? NEEDS : strerror(errno);
    const char *reason = attach_program(xdp, map, interface, tags_seen);
    for (uint32_t i = 0; i < xdp->count && !reason; i++)
        reason = open_queue(&xdp->queues[i], interface, i, map);
    close(map);
    return reason;
}

struct xdp_port *xdp_create(void)
{
    struct xdp_port *port = calloc(1, sizeof *port);
    if (port)
        port->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return port;
}

void xdp_destroy(struct xdp_port *port)
{
    close_sockets(port->now);
    close_sockets(port->next);
    close_file(port->bell);
    free(port);
}

const char *xdp_open(struct xdp_port *port, uint32_t interface, uint32_t queues, bool tags_seen)
{
    if (queues > XDP_MOST_QUEUES)
        return "it has more than 64 receive queues";
    struct xdp *xdp = make_sockets(queues);
    const char *reason =
        xdp && xdp->free_chunks ? open_sockets(xdp, interface, tags_seen) : strerror(ENOMEM);
    if (reason) {
        close_sockets(xdp);
        return reason;
    }
    close_sockets(__atomic_exchange_n(&port->next, xdp, __ATOMIC_ACQ_REL));
    uint64_t one = 1;
    ssize_t written = write(port->bell, &one, sizeof one);
    (void)written;
    return NULL;
}

/* Returns whether there are new sockets. They replace the former ones, whose interface is gone. */
bool xdp_take_next(struct xdp_port *port)
{
    uint64_t rings;
    ssize_t taken = read(port->bell, &rings, sizeof rings);
    (void)taken;
    struct xdp *next = __atomic_exchange_n(&port->next, NULL, __ATOMIC_ACQ_REL);
    if (!next)
        return false;
    close_sockets(port->now);
    port->now = next;
    return true;
}

/* Returns the number of frames for which the kernel found no room. */
uint64_t xdp_lost(const struct xdp_port *port)
{
    uint64_t lost = 0;
    for (uint32_t i = 0; port->now && i < port->now->count; i++) {
        struct xdp_statistics counts;
        socklen_t size = sizeof counts;
        if (!getsockopt(port->now->queues[i].socket, SOL_XDP, XDP_STATISTICS, &counts, &size))
            lost += counts.rx_dropped + counts.rx_ring_full;
    }
    return lost;
}

/* ---- frames ------------------------------------------------------------------------------------ */

static bool wants_wakeup(const struct xdp_ring *ring)
{
    return __atomic_load_n(ring->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP;
}

/* Gives the chunks of the first `count` frames back to the kernel. */
void xdp_release(struct xdp_queue *queue, uint32_t count)
{
    uint64_t *chunks = queue->fill.entries;
    for (uint32_t i = 0; i < count; i++)
        chunks[queue->fill.place++ % XDP_CHUNKS] =
            xdp_frame(queue, i).addr & ~(uint64_t)(XDP_CHUNK - 1);
    queue->received.place += count;
    __atomic_store_n(queue->received.consumer, queue->received.place, __ATOMIC_RELEASE);
    __atomic_store_n(queue->fill.producer, queue->fill.place, __ATOMIC_RELEASE);
    if (wants_wakeup(&queue->fill))
        recvfrom(queue->socket, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static void take_completed(struct xdp *xdp)
{
    struct xdp_ring *ring = &xdp->queues[0].completed;
    uint32_t end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
    const uint64_t *chunks = ring->entries;
    while (ring->place != end && xdp->free < XDP_CHUNKS)
        xdp->free_chunks[xdp->free++] = chunks[ring->place++ % XDP_CHUNKS];
    __atomic_store_n(ring->consumer, ring->place, __ATOMIC_RELEASE);
}

/* Returns the place for the next frame, or NULL if there is no room, or if the interface is down. */
uint8_t *xdp_room(struct xdp *xdp, uint32_t bytes)
{
    if (!xdp->free)
        take_completed(xdp);
    if (!xdp->free || xdp->down || bytes > XDP_CHUNK)
        return NULL;
    return xdp->queues[0].chunks + xdp->free_chunks[xdp->free - 1];
}

/* Queues the frame that was written to the place from xdp_room. xdp_push sends it. */
void xdp_queue(struct xdp *xdp, uint32_t bytes)
{
    struct xdp_ring *sent = &xdp->queues[0].sent;
    struct xdp_desc *frames = sent->entries;
    frames[sent->place++ % XDP_CHUNKS] =
        (struct xdp_desc){.addr = xdp->free_chunks[--xdp->free], .len = bytes};
}

/* Shows the kernel the frames to be sent. Where the driver cannot take them by itself, a call sends a
 * limited number of them. */
void xdp_push(struct xdp *xdp)
{
    struct xdp_queue *queue = &xdp->queues[0];
    struct xdp_ring *sent = &queue->sent;
    int error = 0;
    __atomic_store_n(sent->producer, sent->place, __ATOMIC_RELEASE);
    uint32_t taken = __atomic_load_n(sent->consumer, __ATOMIC_ACQUIRE), before = taken - 1;
    while (taken != sent->place && taken != before && wants_wakeup(sent)) {
        error = sendto(queue->socket, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
        before = taken;
        taken = __atomic_load_n(sent->consumer, __ATOMIC_ACQUIRE);
    }
    xdp->down = taken != sent->place && error == ENETDOWN;
    xdp->waiting = taken != sent->place && wants_wakeup(sent) && !xdp->down;
    xdp->gone = error == ENXIO;
    take_completed(xdp);
}
