/* The parts that all connections to the switch have in common. */

#ifndef INNET_NETWORK_H
#define INNET_NETWORK_H

#include <poll.h>

#include "fastpath.h"

/* Waits for one of several files. The first is the waker, an eventfd, or -1. Returns 1 if it was set. */
int wait_for(struct pollfd *ends, size_t count, double seconds);

enum fate { SKIPPED, CORRUPTED, TAKEN };

/* Copies a packet of `bytes` to `record`, which has room for one with lanes. A bare header gets zeros for
 * lanes. Skips packets of another size, and drops those that do not come from the format's sender or did
 * not arrive as they were sent. */
enum fate take_packet(const struct format *format, const uint8_t *packet, size_t bytes,
                      uint8_t *record);

#endif
