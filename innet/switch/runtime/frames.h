/* The two ends of the packet loop: frames that arrive, and frames that leave. */

#ifndef INNET_FRAMES_H
#define INNET_FRAMES_H

#include "switch.h"

/* sending.c */
static inline bool has_xdp(const struct port *port)
{
    return port->xdp && port->xdp->now && !port->xdp->now->gone;
}
bool pushes_wait(const struct sw *sw);
void push_again(struct sw *sw);
void flush_all(struct sw *sw);

/* receiving.c. Each function takes a batch of frames from one source through the program. */
void receive_from_socket(struct sw *sw, uint32_t number);
void receive_from_cable(struct sw *sw, uint32_t number);
void receive_from_xdp(struct sw *sw, uint32_t number);
void receive_from_core(struct sw *sw, uint32_t from);

/* Further passes of packets: resubmitted and recirculated ones, and clones. */
void allow_passes(struct sw *sw);
void finish_passes(struct sw *sw);
bool passes_wait(const struct sw *sw);

#endif
