/* The switch's ends of cables in shared memory; wire/ring.h describes these. */

#define _GNU_SOURCE
#include "cables.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void close_files(const int *files, u32 count)
{
    for (u32 i = 0; i < count; i++)
        if (files[i] >= 0)
            close(files[i]);
}

/* Returns memory that no process can shrink, or -1. */
static int make_memory(void)
{
    int memory = memfd_create("innet-cable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return -1;
    /* Without its pages, a later write could find that there is no memory left. */
    if (!posix_fallocate(memory, 0, sizeof(struct cable))
        && !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return memory;
    close(memory);
    return -1;
}

static bool offer(int peer, const int *files)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(CABLE_FILES * sizeof(int))] = {0};
    struct cable_offer text = {CABLE_VERSION, sizeof(struct cable)};
    struct iovec vector = {&text, sizeof text};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(CABLE_FILES * sizeof(int));
    memcpy(CMSG_DATA(passed), files, CABLE_FILES * sizeof(int));
    return sendmsg(peer, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof text;
}

static bool connect_cable(struct shared_cable *cable, int peer)
{
    int files[CABLE_FILES] = {make_memory(), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                              eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    struct cable *memory = MAP_FAILED;
    if (files[0] >= 0)
        memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      files[0], 0);
    if (memory == MAP_FAILED || files[1] < 0 || files[2] < 0 || !offer(peer, files)) {
        if (memory != MAP_FAILED)
            munmap(memory, sizeof *memory);
        close_files(files, CABLE_FILES);
        return false;
    }
    close(files[0]);
    *cable = (struct shared_cable){.memory = memory,
                                   .peer = peer,
                                   .wakeup = files[1],
                                   .in = {.ring = &memory->up},
                                   .out = {.ring = &memory->down, .bell = files[2]}};
    return true;
}

/* Takes the worker that connects to a port's socket. A port has one worker at a time. */
void cable_accept(struct port *port, u32 number, int poller)
{
    int peer = accept4(port->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0)
        return;
    if (port->cable.memory || !connect_cable(&port->cable, peer)) {
        close(peer);
        return;
    }
    watch(poller, peer, number, PEER_EVENT);
    watch(poller, port->cable.wakeup, number, FRAMES_EVENT);
}

/* Ends a cable whose worker has ended. */
void cable_close(struct port *port)
{
    struct shared_cable *cable = &port->cable;
    if (!cable->memory)
        return;
    munmap(cable->memory, sizeof *cable->memory);
    close_files((int[]){cable->peer, cable->wakeup, cable->out.bell}, 3);
    *cable = (struct shared_cable){0};
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
    u64 wakeups;
    if (port->cable.memory) {
        ssize_t taken = read(port->cable.wakeup, &wakeups, sizeof wakeups);
        (void)taken;
    }
}
