/* The connection to a switch on the same machine: a cable in shared memory, which wire/ring.h describes. */

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

struct shared_memory {
    struct sockaddr_un address;
    int waker;           /* an eventfd, or -1 */
    int connection;      /* to the switch, or -1 */
    int wakeup;          /* the eventfd of this end, or -1 */
    struct cable *cable; /* NULL until the switch has passed it on */
    struct ring_reader in;
    struct ring_writer out;
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
    if (shared->cable)
        munmap(shared->cable, sizeof *shared->cable);
    shared->cable = NULL;
    close_file(&shared->connection);
    close_file(&shared->wakeup);
    close_file(&shared->out.bell);
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
static int is_firm(int memory)
{
    struct stat about;
    int seals = fcntl(memory, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(memory, &about)
           && about.st_size == sizeof(struct cable);
}

static int map_cable(struct shared_memory *shared, const struct cable_offer *offer, int *files)
{
    struct cable *cable = MAP_FAILED;
    if (offer->version != CABLE_VERSION || offer->bytes != sizeof *cable || !is_firm(files[0]))
        return EPROTO;
    cable =
        mmap(NULL, sizeof *cable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, files[0], 0);
    if (cable == MAP_FAILED)
        return errno;
    shared->cable = cable;
    shared->wakeup = files[2];
    shared->in = (struct ring_reader){.ring = &cable->down};
    shared->out = (struct ring_writer){.ring = &cable->up, .bell = files[1]};
    files[1] = files[2] = -1;
    return 0;
}

/* Takes what the switch passes on. Returns EAGAIN if it has not done so yet. */
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
    int files[CABLE_FILES] = {-1, -1, -1}, number = EPROTO;
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    if (passed && passed->cmsg_type == SCM_RIGHTS)
        memcpy(files, CMSG_DATA(passed), passed->cmsg_len - CMSG_LEN(0));
    if (bytes == sizeof offer && files[CABLE_FILES - 1] >= 0)
        number = map_cable(shared, &offer, files);
    for (int i = 0; i < CABLE_FILES; i++)
        close_file(&files[i]);
    return number;
}

/* Goes on connecting. Returns 0 if there is a cable, EAGAIN if the switch still has to answer, and another
 * errno if there is no connection. */
int innet_shared_connect(void *context)
{
    struct shared_memory *shared = context;
    int number = 0;
    if (shared->cable)
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
    shared->connection = shared->wakeup = shared->out.bell = -1;
    return shared;
}

void innet_shared_destroy(void *context)
{
    disconnect(context);
    free(context);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Packets for which there is no room, or no switch, are lost, as on a wire. */
int innet_shared_send(void *context, const uint8_t *packets, size_t count, size_t bytes)
{
    struct shared_memory *shared = context;
    if (innet_shared_connect(shared))
        return 0;
    for (; count; count--, packets += bytes)
        if (!ring_write(&shared->out, packets, (uint32_t)bytes))
            break;
    ring_publish(&shared->out);
    return 0;
}

/* Copies the intact packets of the right size that are there to the buffer, which is as large as MESSAGES
 * times `room`. Returns EAGAIN if nothing is there. */
int innet_shared_receive(void *context, uint8_t *buffer, size_t room, const struct format *format,
                         struct arrivals *arrivals)
{
    struct shared_memory *shared = context;
    *arrivals = (struct arrivals){0};
    if (innet_shared_connect(shared) || !ring_look(&shared->in))
        return EAGAIN;
    uint8_t *end = buffer, *last = buffer + MESSAGES * room - room;
    while (end <= last && arrivals->packets < BATCH_PACKETS) {
        uint32_t bytes = ring_read(&shared->in, end, (uint32_t)room);
        if (!bytes)
            break;
        if (bytes != format->bytes)
            continue;
        if (!is_intact(format, end)) {
            arrivals->corrupted++;
            continue;
        }
        end += bytes;
        arrivals->packets++;
    }
    ring_release(&shared->in);
    return 0;
}

int innet_shared_wait(void *context, double seconds)
{
    struct shared_memory *shared = context;
    if (shared->cable && !ring_sleep(&shared->in))
        return 0;
    struct pollfd ends[] = {
        {shared->waker, POLLIN, 0}, {shared->wakeup, POLLIN, 0}, {shared->connection, POLLIN, 0}};
    int woken = wait_for(ends, 3, seconds);
    uint64_t wakeups;
    if (ends[1].revents && read(shared->wakeup, &wakeups, sizeof wakeups) < 0 && errno != EAGAIN)
        disconnect(shared);
    if (ends[2].revents && shared->cable)
        disconnect(shared); /* the switch sends nothing after the files: it has ended */
    return woken;
}
