/* Workers that send and receive super-frames, as agents do: many datagrams in one call, of a UDP socket
 * with UDP_SEGMENT and UDP_GRO. All of them run in one thread. super_stations.py starts them. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { ROOM = 1 << 17, PATIENCE_MS = 1000 };

struct station {
    int64_t socket;
    uint8_t *packets;     /* a contribution to each slot */
    const uint64_t *sums; /* of each packet's check, without its sequence number */
    uint64_t answers;
};

struct stations {
    struct station *stations;
    uint64_t count, window, burst, packet_bytes;
    uint64_t sequence_at, check_at, weight; /* of the sequence number in the check */
    double seconds;
    uint64_t sent; /* by each station */
    double took;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Waits until so many answers have come since the beginning. */
static bool wait_for(const struct stations *all, struct station *station, uint64_t answers)
{
    static uint8_t room[ROOM];
    struct pollfd file = {.fd = (int)station->socket, .events = POLLIN};
    while (station->answers < answers) {
        ssize_t bytes = recv(file.fd, room, sizeof room, MSG_DONTWAIT);
        if (bytes > 0)
            station->answers += (uint64_t)bytes / all->packet_bytes;
        else if (poll(&file, 1, PATIENCE_MS) <= 0)
            return false;
    }
    return true;
}

/* Sends contributions to some slots, for their next use. */
static bool send_some(const struct stations *all, struct station *station, uint64_t first,
                      uint64_t end, uint32_t sequence)
{
    for (uint64_t slot = first; slot < end; slot++) {
        uint8_t *packet = station->packets + slot * all->packet_bytes;
        uint32_t number = htonl(sequence);
        uint32_t check = htonl((uint32_t)(station->sums[slot] + all->weight * sequence >> 32));
        memcpy(packet + all->sequence_at, &number, sizeof number);
        memcpy(packet + all->check_at, &check, sizeof check);
    }
    for (; first < end; first += all->burst) {
        uint64_t some = end - first < all->burst ? end - first : all->burst;
        size_t bytes = some * all->packet_bytes;
        if (send((int)station->socket, station->packets + first * all->packet_bytes, bytes, 0)
            != (ssize_t)bytes)
            return false;
    }
    return true;
}

/* Lets the stations send for some seconds, with at most a window of unanswered contributions each. While
 * one half of the window is sent, the other is on its way. Returns false if something is lost. */
bool stations_run(struct stations *all)
{
    double started = now();
    uint64_t half = all->window / 2;
    all->sent = 0;
    for (uint32_t sequence = 1; now() - started < all->seconds; sequence++)
        for (int part = 0; part < 2; part++) {
            for (uint64_t i = 0; i < all->count; i++) {
                struct station *station = &all->stations[i];
                if (!wait_for(all, station, all->sent < half ? 0 : all->sent - half)
                    || !send_some(all, station, part ? half : 0, part ? all->window : half,
                                  sequence))
                    return false;
            }
            all->sent += half;
        }
    for (uint64_t i = 0; i < all->count; i++)
        if (!wait_for(all, &all->stations[i], all->sent))
            return false;
    all->took = now() - started;
    return true;
}
