/* The trace of a program, in the form of BMv2's log. */

#define _GNU_SOURCE
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096 };

/* Logs "[time] [innet] [D] [thread n] [frame.copy] [cxt 0] message" in one write. */
void rt_trace(struct sw *sw, const struct path *path, char level, const char *message, ...)
{
    if (!rt_logging(sw))
        return;
    char line[LINE];
    struct timespec now;
    struct tm local;
    va_list values;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t used = strftime(line, sizeof line, "[%H:%M:%S", &local);
    used += (size_t)snprintf(line + used, sizeof line - used,
                             ".%03ld] [innet] [%c] [thread %ld] [%llu.%u] [cxt 0] ",
                             now.tv_nsec / 1000000, level, (long)syscall(SYS_gettid),
                             (unsigned long long)path->number, path->copy);
    va_start(values, message);
    int wanted = vsnprintf(line + used, sizeof line - used, message, values);
    va_end(values);
    if (wanted > 0)
        used += (size_t)wanted;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    line[used] = '\n';
    rt_log_line(sw, line, used + 1);
}

/* Writes a number of `bits` bits as hexadecimal digits. In memory, numbers of up to 128 bits are
 * little-endian, and wider ones have the most significant byte first. */
const char *rt_hex(char *text, const void *value, uint32_t bytes, uint32_t bits)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t shown = (bits + 7) / 8 < bytes ? (bits + 7) / 8 : bytes;
    for (uint32_t i = 0; i < shown; i++) {
        uint8_t byte = ((const uint8_t *)value)[bits > 128 ? i : shown - 1 - i];
        text[2 * i] = digits[byte >> 4];
        text[2 * i + 1] = digits[byte & 15];
    }
    text[2 * shown] = 0;
    return text;
}
