/* The parts that all connections to the switch have in common. */

#ifndef INNET_NETWORK_H
#define INNET_NETWORK_H

#include <poll.h>

#include "fastpath.h"

/* Waits for one of several files. The first is the waker, an eventfd, or -1. Returns 1 if it was set. */
int wait_for(struct pollfd *ends, size_t count, double seconds);

/* Returns whether a packet comes from the format's sender and arrived as it was sent. */
int is_intact(const struct format *format, const uint8_t *packet);

#endif
