/* The parts that all connections to the switch have in common: time, waiting, and the check. */

#define _GNU_SOURCE
#include <math.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "network.h"

static struct timespec timespec_of(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

double innet_now(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void innet_pause(void *context, double seconds)
{
    (void)context;
    struct timespec time = timespec_of(seconds);
    nanosleep(&time, NULL);
}

int wait_for(struct pollfd *ends, size_t count, double seconds)
{
    struct timespec time = timespec_of(seconds > 0 ? seconds : 0);
    if (ppoll(ends, count, seconds < 1e9 ? &time : NULL, NULL) <= 0 || !ends[0].revents)
        return 0;
    uint64_t wakeups;
    return read(ends[0].fd, &wakeups, sizeof wakeups) == sizeof wakeups;
}

/* Returns whether a packet comes from the format's sender and arrived as it was sent. */
static int is_intact(const struct format *format, const uint8_t *packet, size_t bytes)
{
    const uint8_t *sender = format->sender;
    for (size_t part = 0; part < format->checked; sender += format->sizes[part++])
        if (memcmp(packet + format->places[part], sender, format->sizes[part]))
            return 0;
    const uint8_t *header = packet + format->front;
    size_t words = (bytes - format->front) / WORD_BYTES;
    uint64_t sum = format->base + word_sum(header, words, format->weights);
    return sum >> 32 == word_at(header + AT_CHECK);
}

enum fate take_packet(const struct format *format, const uint8_t *packet, size_t bytes,
                      uint8_t *record)
{
    size_t bare = format->front + HEADER_BYTES;
    if (bytes != format->bytes && bytes != bare)
        return SKIPPED;
    if (!is_intact(format, packet, bytes))
        return CORRUPTED;
    uint8_t kind = packet[format->front + AT_KIND];
    if (bytes == bare && kind != KIND_PENDING && kind != KIND_STALE)
        return SKIPPED;
    if (record != packet)
        memcpy(record, packet, bytes);
    memset(record + bytes, 0, format->bytes - bytes);
    return TAKEN;
}
