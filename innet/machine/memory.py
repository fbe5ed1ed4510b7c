"""Memory that was freed, and its return to the system."""

import contextlib
import ctypes
import functools
import threading
import time

_EVERY_S = 10.0


@functools.cache
def return_freed_memory() -> None:
    """Start a thread that returns freed memory to the system, every 10 s. Further calls do nothing.

    gRPC takes half a megabyte for each call whose headers are too large. The C library keeps most of such
    memory after it is freed, in pieces, and takes more for the next calls.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:  # another C library than glibc
        return

    def run() -> None:
        while True:
            time.sleep(_EVERY_S)
            trim(0)

    with contextlib.suppress(RuntimeError):  # there are too many threads
        threading.Thread(target=run, name="innet-memory", daemon=True).start()
