"""The streams on which an agent copies and quantizes tensors of GPUs, beside the caller's own work.

A caller queues work on a GPU ahead of time: a backward pass may be queued as a whole while its first
gradients are summed. So a sum must not wait for the end of the caller's stream. It waits for what was
queued when it was submitted, and goes on in a stream of the agent's own.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


class SideStreams:
    """An agent's streams, one on each GPU."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def after(self, tensor: Any) -> "SideStream | None":
        """Return the stream of work on a tensor, after all work that its caller has queued by now.

        Return None for a tensor on the CPU.
        """
        if isinstance(tensor, np.ndarray) or tensor.device.type != "cuda":
            return None
        import torch

        if tensor.device not in self._streams:
            self._streams[tensor.device] = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        return SideStream(self._streams[tensor.device])


class SideStream:
    """A stream for one call. Make it in the caller's thread, and use it in the thread that serves it."""

    def __init__(self, stream: "torch.cuda.Stream") -> None:
        import torch

        self._stream = stream
        self._callers_stream = torch.cuda.current_stream(stream.device)
        self._ready = self._callers_stream.record_event()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it this thread's stream during the block. At the end, wait for what it has to do."""
        import torch

        try:
            # The device, too: leaving the stream alone would make a context on the thread's own device.
            with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
                self._stream.wait_event(self._ready)
                yield
        finally:
            self._stream.synchronize()

    def hand_over(self, result: Any) -> None:
        """Keep the memory of a result, if it is a tensor, while the caller's stream may use it."""
        if getattr(result, "is_cuda", False):
            parts = (result._indices(), result._values()) if result.is_sparse else (result,)  # noqa: SLF001
            for part in parts:
                part.record_stream(self._callers_stream)
