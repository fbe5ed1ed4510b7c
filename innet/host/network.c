/* The parts that all connections to the switch have in common: time, waiting, and the check. */

#define _GNU_SOURCE
#include <math.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "network.h"

struct timespec innet_timespec(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

/* Returns the time of Python's time.monotonic, because the same times are used in both languages. */
double innet_now(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int innet_wait_for(struct pollfd *ends, size_t count, double seconds)
{
    struct timespec time = innet_timespec(seconds > 0 ? seconds : 0);
    if (ppoll(ends, count, seconds < 1e9 ? &time : NULL, NULL) <= 0 || !ends[0].revents)
        return 0;
    uint64_t wakeups;
    return read(ends[0].fd, &wakeups, sizeof wakeups) == sizeof wakeups;
}

/* Returns whether a packet comes from the format's sender and arrived as it was sent. */
static int is_intact(const struct format *format, const uint8_t *packet)
{
    const uint8_t *sender = format->sender;
    uint8_t differs = 0;
    for (size_t part = 0; part < format->checked; part++)
        for (size_t k = 0; k < format->sizes[part]; k++)
            differs |= packet[format->places[part] + k] ^ *sender++;
    if (differs)
        return 0;
    const uint8_t *header = packet + format->front;
    uint64_t sum = format->base + word_sum(header, format->words, format->weights);
    return sum >> 32 == word_at(header + AT_CHECK);
}

void innet_clear(struct inbox *inbox)
{
    inbox->packets[BARE] = inbox->packets[FULL] = inbox->corrupted = 0;
}

uint8_t *innet_keep(struct inbox *inbox, const uint8_t *packet, size_t bytes)
{
    int length = bytes == inbox->formats[FULL]->bytes ? FULL : BARE;
    const struct format *format = inbox->formats[length];
    if (bytes != format->bytes)
        return NULL;
    if (!is_intact(format, packet)) {
        inbox->corrupted++;
        return NULL;
    }
    uint8_t *place = inbox->buffers[length] + (size_t)inbox->packets[length]++ * bytes;
    if (place != packet)
        memmove(place, packet, bytes);
    return place;
}
