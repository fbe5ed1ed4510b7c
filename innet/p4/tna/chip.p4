// What the two chips differ in: Tofino 1 and Tofino 2.
//
// A stateful ALU of Tofino 1 returns one word per packet, of Tofino 2 up to four. Two lanes share a
// stateful ALU, so on Tofino 1 a packet that reads lanes passes the pipeline twice.

#ifndef INNET_CHIP_P4
#define INNET_CHIP_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 1
#include <tna.p4>
#else
#include <t2na.p4>
#endif

// The port of the switch's CPU: PCIe, as Stratum and the SDE number it on switches of two pipes.
#ifndef CPU_PORT
#if __TARGET_TOFINO__ == 1
#define CPU_PORT 192
#else
#define CPU_PORT 0
#endif
#endif

#if __TARGET_TOFINO__ == 1
// A port's number begins with its pipe's. In every pipe, one port leads back into the ingress.
#define PIPE(n) (9w##n << 7) &&& 0x180
#define RECIRCULATION_PORT(n) (9w##n << 7) + 68
#endif

#endif
