/* Memory. All sizes are of type size_t, and no product of two sizes overflows. */

#define _GNU_SOURCE
#include "switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Returns zeroed memory, or NULL if there is none. For no elements it still returns some memory. */
void *zeroed(size_t count, size_t bytes) { return calloc(count ? count : 1, bytes); }

/* Returns the memory, or ends the process if it is NULL. For the small amounts that a running switch
 * needs. */
void *needed(void *memory)
{
    if (memory)
        return memory;
    fputs("innet-switch: out of memory\n", stderr);
    abort();
}

/* Returns the memory with another size. Additional memory is not zeroed. */
void *resized(void *memory, size_t count, size_t bytes)
{
    return needed(reallocarray(memory, count ? count : 1, bytes));
}

/* Returns zeroed pages, or NULL if there are none. A page takes memory only once it is touched. */
void *pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void free_pages(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
