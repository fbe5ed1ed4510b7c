/* Capture files of frames, in the format of libpcap. */

#define _GNU_SOURCE
#include "switch.h"

#include <sys/uio.h>
#include <time.h>

struct record { uint32_t seconds, microseconds, captured, bytes; };

/* Writes a frame in one call, so that a reader of the file never finds half a frame. */
void capture_frame(int file, const uint8_t *frame, uint32_t bytes)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct record record = {(uint32_t)now.tv_sec, (uint32_t)(now.tv_nsec / 1000), bytes, bytes};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)frame, bytes}};
    ssize_t written = writev(file, parts, 2);
    (void)written; /* a disk that is full must not stop the switch */
}
