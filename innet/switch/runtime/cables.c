/* The switch's ends of cables in shared memory; wire/ring.h describes these. */

#define _GNU_SOURCE
#include "cables.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(RT_MAX_CORES <= CABLE_CORES, "as in innet/switch/constants.py");

static void close_files(const int *files, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (files[i] >= 0)
            close(files[i]);
}

/* Returns the file of memory that no process can shrink, or -1. */
static int make_memory(size_t bytes)
{
    int memory = memfd_create("innet-cable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return -1;
    /* All pages are allocated now, so that no later write finds that there is no memory left. */
    if (!posix_fallocate(memory, 0, (off_t)bytes)
        && !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return memory;
    close(memory);
    return -1;
}

/* Passes the memory and the eventfds of the cores and of the worker to the worker. */
static bool offer(int peer, const int *files, uint32_t cores)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(CABLE_FILES * sizeof(int))] = {0};
    size_t bytes = (cores + 2) * sizeof(int);
    struct cable_offer text = {CABLE_VERSION, cores * (uint32_t)sizeof(struct cable)};
    struct iovec vector = {&text, sizeof text};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(passed), files, bytes);
    return sendmsg(peer, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof text;
}

static struct cable *map_memory(int memory, size_t bytes)
{
    void *mapped = MAP_FAILED;
    if (memory >= 0)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Returns the memory of a new cable, with its eventfds in `files`, or NULL. */
static struct cable *make_cable(uint32_t cores, int peer, int *files)
{
    size_t bytes = cores * sizeof(struct cable);
    bool whole = true;
    files[0] = make_memory(bytes);
    /* Each core is woken once: it may sleep already, and has to say so in the new ring. */
    for (uint32_t i = 0; i < cores; i++)
        whole &= (files[1 + i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    whole &= (files[1 + cores] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    struct cable *memory = map_memory(files[0], bytes);
    if (memory && whole && offer(peer, files, cores))
        return memory;
    if (memory)
        munmap(memory, bytes);
    close_files(files, cores + 2);
    return NULL;
}

/* Sets a core's end of a cable. The first core holds its own lock, and takes that of a later core. */
static void set_cable(struct sw *core, uint32_t number, struct shared_cable cable)
{
    rt_hold(core);
    int old = core->ports[number].cable.wakeup;
    if (core->ports[number].cable.memory) {
        /* Closing alone would not end the watch: a worker has the eventfd, too. */
        epoll_ctl(core->poller, EPOLL_CTL_DEL, old, NULL);
        close(old);
    }
    core->ports[number].cable = cable;
    if (cable.memory)
        watch(core->poller, cable.wakeup, number, FRAMES_EVENT);
    rt_release(core);
}

/* Takes the worker that connects to a port's socket. A port has one worker at a time. */
void cable_accept(struct sw *sw, uint32_t number)
{
    struct port *port = &sw->ports[number];
    int files[CABLE_FILES];
    int peer = accept4(port->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0)
        return;
    struct cable *memory = port->cable.memory ? NULL : make_cable(sw->cores, peer, files);
    if (!memory) {
        close(peer);
        return;
    }
    close(files[0]);
    watch(sw->poller, peer, number, PEER_EVENT);
    for (uint32_t i = 0; i < sw->cores; i++)
        set_cable(
            sw->peers[i], number,
            (struct shared_cable){.memory = &memory[i],
                                  .peer = peer,
                                  .wakeup = files[1 + i],
                                  .in = {.ring = &memory[i].up},
                                  .out = {.ring = &memory[i].down, .bell = files[1 + sw->cores]}});
}

/* Ends a cable whose worker has ended. */
void cable_close(struct sw *sw, uint32_t number)
{
    struct shared_cable cable = sw->ports[number].cable;
    if (!cable.memory)
        return;
    for (uint32_t i = 0; i < sw->cores; i++)
        set_cable(sw->peers[i], number, (struct shared_cable){0});
    munmap(cable.memory, sw->cores * sizeof *cable.memory);
    close_files((int[]){cable.peer, cable.out.bell}, 2);
}

/* Returns whether the worker's end is closed. A worker never sends anything on its connection. */
bool cable_is_closed(const struct port *port)
{
    char byte;
    return port->cable.memory
           && (recv(port->cable.peer, &byte, sizeof byte, MSG_DONTWAIT) >= 0 || errno != EAGAIN);
}

void cable_drain(const struct port *port)
{
    uint64_t wakeups;
    if (port->cable.memory) {
        ssize_t taken = read(port->cable.wakeup, &wakeups, sizeof wakeups);
        (void)taken;
    }
}
