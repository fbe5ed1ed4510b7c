/* The switch's ends of cables in shared memory, for the packet loop. */

#ifndef INNET_CABLES_H
#define INNET_CABLES_H

#include "switch.h"

void cable_wake(const struct shared_cable *cable);

#endif
