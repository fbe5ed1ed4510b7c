/* The switch's ends of cables in shared memory, for the packet loop. */

#ifndef INNET_CABLES_H
#define INNET_CABLES_H

#include "events.h"
#include "switch.h"

void cable_accept(struct sw *sw, uint32_t number);
void cable_close(struct sw *sw, uint32_t number);
bool cable_is_closed(const struct port *port);
void cable_drain(const struct port *port);

#endif
