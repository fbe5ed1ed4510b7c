"""The event loop of gRPC's asyncio servers: one for the process, in a thread of its own.

gRPC's asyncio API polls for the whole process and wakes every loop that it knows. So all servers of a
process share one loop.
"""

import asyncio
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop. The first call starts it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="innet-event-loop", daemon=True).start()
    return loop


def on_loop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the loop, and return its result. Call it from any thread but the loop's."""
    return asyncio.run_coroutine_threadsafe(coroutine, event_loop()).result()
