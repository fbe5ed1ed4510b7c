/* The connection to a switch on the same machine: a cable in shared memory, which wire/ring.h describes.
 *
 * A switch on several cores has a pair of rings for each. Any core takes any packet, but it has to hand
 * it over to another core if that one sums the cell. An answer comes from the core that has summed, so
 * the next packet to the same cell goes to that core. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "network.h"
#include "ring.h"

enum { CELLS = 2 << 16 }; /* two for each slot */

struct shared_memory {
    struct sockaddr_un address;
    int waker;            /* an eventfd, or -1 */
    int connection;       /* to the switch, which wakes this end with it, or -1 */
    struct cable *cables; /* one for each core; NULL until the switch has passed them on */
    uint32_t cores, next; /* the number of cores, and the one whose packets are taken first */
    struct ring_reader in[CABLE_CORES];
    struct ring_writer out[CABLE_CORES];
    int bells[CABLE_CORES];  /* the eventfds of the cores */
    size_t front;            /* bytes before a packet's header, once packets have arrived */
    uint8_t cores_of[CELLS]; /* the cores that have answered, counted from 1 */
};

/* ---- connection ------------------------------------------------------------------------------ */

static void close_file(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

static void disconnect(struct shared_memory *shared)
{
    if (shared->cables)
        munmap(shared->cables, shared->cores * sizeof *shared->cables);
    shared->cables = NULL;
    close_file(&shared->connection);
    for (uint32_t i = 0; i < shared->cores; i++)
        close_file(&shared->bells[i]);
    shared->cores = 0;
}

static int open_connection(struct shared_memory *shared)
{
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return errno;
    if (connect(connection, (struct sockaddr *)&shared->address, sizeof shared->address)) {
        int number = errno;
        close(connection);
        return number;
    }
    shared->connection = connection;
    return 0;
}

/* Returns whether access to the memory can never fail, whatever the switch does. */
static int is_firm(int memory, size_t bytes)
{
    struct stat about;
    int seals = fcntl(memory, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(memory, &about)
           && (size_t)about.st_size == bytes;
}

/* Takes the memory, and the eventfds that follow it in `files`. */
static int map_cables(struct shared_memory *shared, const struct cable_offer *offer, int *files,
                      uint32_t cores)
{
    struct cable *cables = MAP_FAILED;
    size_t bytes = cores * sizeof *cables;
    if (offer->version != CABLE_VERSION || offer->bytes != bytes || !is_firm(files[0], bytes))
        return EPROTO;
    cables = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, files[0], 0);
    if (cables == MAP_FAILED)
        return errno;
    shared->cables = cables;
    shared->cores = cores;
    shared->next = 0;
    for (uint32_t i = 0; i < cores; i++) {
        shared->in[i] = (struct ring_reader){.ring = &cables[i].down};
        shared->out[i] = (struct ring_writer){.ring = &cables[i].up};
        shared->bells[i] = files[1 + i];
        files[1 + i] = -1;
    }
    memset(shared->cores_of, 0, sizeof shared->cores_of);
    return 0;
}

/* Takes the files that the switch passes on. Returns EAGAIN if they have not come yet. */
static int take_offer(struct shared_memory *shared)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(CABLE_FILES * sizeof(int))];
    struct cable_offer offer;
    struct iovec vector = {&offer, sizeof offer};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(shared->connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0)
        return errno;
    if (!bytes)
        return EBUSY; /* another worker has the port */
    int files[CABLE_FILES], number = EPROTO;
    size_t count = 0;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    if (passed && passed->cmsg_type == SCM_RIGHTS) {
        count = (passed->cmsg_len - CMSG_LEN(0)) / sizeof *files;
        memcpy(files, CMSG_DATA(passed), count * sizeof *files);
    }
    if (bytes == sizeof offer && count >= 2)
        number = map_cables(shared, &offer, files, (uint32_t)count - 1);
    for (size_t i = 0; i < count; i++)
        close_file(&files[i]);
    return number;
}

/* Goes on connecting. Returns 0 if there is a cable, EAGAIN if the switch still has to answer, and another
 * errno if there is no connection. */
int innet_shared_connect(void *context)
{
    struct shared_memory *shared = context;
    int number = 0;
    if (shared->cables)
        return 0;
    if (shared->connection < 0)
        number = open_connection(shared);
    if (!number)
        number = take_offer(shared);
    if (number && number != EAGAIN)
        disconnect(shared);
    return number;
}

/* Returns a connection that is not made yet, or NULL if the path is too long or there is no memory. */
void *innet_shared_create(const char *path, int waker)
{
    struct shared_memory *shared = calloc(1, sizeof *shared);
    if (!shared || strlen(path) >= sizeof shared->address.sun_path) {
        free(shared);
        return NULL;
    }
    shared->address.sun_family = AF_UNIX;
    strcpy(shared->address.sun_path, path);
    shared->waker = waker;
    shared->connection = -1;
    return shared;
}

void innet_shared_destroy(void *context)
{
    disconnect(context);
    free(context);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Returns the place of the number of the core that sums a packet's cell. */
static uint8_t *core_of(struct shared_memory *shared, const uint8_t *packet)
{
    const uint8_t *header = packet + shared->front;
    return &shared->cores_of[half_at(header + AT_SLOT) * 2 + (word_at(header + AT_SEQUENCE) & 1)];
}

static uint32_t core_for(struct shared_memory *shared, const uint8_t *packet)
{
    if (shared->cores == 1 || !shared->front)
        return 0;
    uint8_t core = *core_of(shared, packet);
    return core ? core - 1 : 0;
}

/* Sends packets that others follow at once, and so wakes nobody. Packets for which there is no room, or no
 * switch, are lost, as on a wire. */
int innet_shared_put(void *context, const uint8_t *packets, size_t count, size_t bytes)
{
    struct shared_memory *shared = context;
    if (innet_shared_connect(shared))
        return 0;
    for (; count; count--, packets += bytes)
        ring_write(&shared->out[core_for(shared, packets)], packets, (uint32_t)bytes);
    for (uint32_t i = 0; i < shared->cores; i++)
        ring_show(&shared->out[i]);
    return 0;
}

/* Cannot block, whatever the switch has written to the eventfd: this adds nothing to it. */
static void wake_core(int bell)
{
    uint64_t nothing = 0;
    ssize_t written = write(bell, &nothing, sizeof nothing);
    (void)written;
}

int innet_shared_send(void *context, const uint8_t *packets, size_t count, size_t bytes)
{
    struct shared_memory *shared = context;
    int number = innet_shared_put(context, packets, count, bytes);
    for (uint32_t i = 0; i < shared->cores; i++)
        if (ring_publish(&shared->out[i]))
            wake_core(shared->bells[i]);
    return number;
}

/* Keeps the intact packets of one core, as far as the inbox has room. Returns whether there are any. */
static bool receive_from(struct shared_memory *shared, uint32_t core, struct inbox *inbox)
{
    struct ring_reader *in = &shared->in[core];
    if (!ring_look(in))
        return false;
    size_t step = inbox->formats[FULL]->bytes;
    const uint8_t *last = inbox->buffers[FULL] + (MESSAGES - 1) * inbox->room;
    while (inbox->packets[FULL] + inbox->packets[BARE] < BATCH_PACKETS) {
        uint8_t *end = inbox->buffers[FULL] + (size_t)inbox->packets[FULL] * step;
        uint32_t bytes = end <= last ? ring_read(in, end, (uint32_t)inbox->room) : 0;
        if (!bytes)
            break;
        const uint8_t *kept = innet_keep(inbox, end, bytes);
        if (kept && shared->cores > 1)
            *core_of(shared, kept) = (uint8_t)(core + 1);
    }
    ring_release(in);
    return true;
}

/* Keeps the intact packets of all cores, beginning with another core each time. Returns EAGAIN if nothing
 * is there. */
int innet_shared_receive(void *context, struct inbox *inbox)
{
    struct shared_memory *shared = context;
    innet_clear(inbox);
    if (innet_shared_connect(shared))
        return EAGAIN;
    shared->front = inbox->formats[FULL]->front;
    bool found = false;
    for (uint32_t i = 0; i < shared->cores; i++)
        found |= receive_from(shared, (shared->next + i) % shared->cores, inbox);
    shared->next++;
    return found ? 0 : EAGAIN;
}

/* Takes the wake-ups that have come, at most one for each core. Returns false if the switch has ended. */
static bool take_wakeups(const struct shared_memory *shared)
{
    char byte;
    for (uint32_t i = 0; i < shared->cores; i++) {
        ssize_t bytes = recv(shared->connection, &byte, sizeof byte, MSG_DONTWAIT);
        if (bytes <= 0)
            return bytes < 0 && errno == EAGAIN;
    }
    return true;
}

int innet_shared_wait(void *context, double seconds)
{
    struct shared_memory *shared = context;
    bool asleep = true;
    for (uint32_t i = 0; i < shared->cores; i++)
        asleep &= ring_sleep(&shared->in[i]);
    if (!asleep)
        return 0;
    struct pollfd ends[] = {{shared->waker, POLLIN, 0}, {shared->connection, POLLIN, 0}};
    int woken = innet_wait_for(ends, 2, seconds);
    if (ends[1].revents && shared->cables && !take_wakeups(shared))
        disconnect(shared);
    return woken;
}
