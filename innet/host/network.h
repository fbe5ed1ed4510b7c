/* The parts that all connections to the switch have in common. */

#ifndef INNET_NETWORK_H
#define INNET_NETWORK_H

#include <poll.h>
#include <time.h>

#include "fastpath.h"

struct timespec innet_timespec(double seconds);

/* Waits for one of several files. The first is the waker, an eventfd, or -1. Returns 1 if it was set. */
int innet_wait_for(struct pollfd *ends, size_t count, double seconds);

/* Empties the inbox. */
void innet_clear(struct inbox *inbox);

/* Keeps a packet of so many bytes behind the others of its length, and returns its place. Returns NULL for
 * a packet of another length, and for one that comes from another sender or is damaged. */
uint8_t *innet_keep(struct inbox *inbox, const uint8_t *packet, size_t bytes);

#endif
