"""Quantization on the tensor's own device: only integers leave a GPU, and only once.

The rows' largest magnitudes go to the CPU, which computes scales and steps. These arrays are small.
The device divides, rounds and packs. One asynchronous copy brings the integers into pinned memory.
This thread waits for that copy, and for nothing else but what its stream
(:mod:`innet.host.side_streams`) has to do before.

The kernels are Triton's if it can be imported and the number of lanes is a power of two, else
PyTorch's. Both give the same bits as numpy.
"""

import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
import torch

from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers import torch_kernels
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.interface import Floats, Quantizer, Rounding, Scaled
from innet.host.quantizers.narrow import Narrow
from innet.host.quantizers.rounding import Stochastic
from innet.wire.layout import Flag


def kernels(lanes: int) -> ModuleType:
    """Return the fastest kernels available."""
    if lanes & (lanes - 1) or not importlib.util.find_spec("triton"):
        return torch_kernels
    from innet.host.quantizers import triton_kernels

    return triton_kernels


def on_device(quantizer: Quantizer, device: torch.device, lanes: int) -> Any:
    """Return the quantizer for tensors on a device; on the CPU if the device cannot help."""
    if isinstance(quantizer, Narrow | BlockScale):
        return OnDevice(quantizer, device, kernels(lanes))
    return OnCpu(quantizer, device)


class OnCpu:
    """A quantizer that copies a device's tensors to the CPU; see :class:`OnDevice`."""

    def __init__(self, quantizer: Quantizer, device: torch.device) -> None:
        self._quantizer = quantizer
        self._device = device
        self.rows_per_chunk = quantizer.rows_per_chunk
        self.scales, self.quantize = quantizer.scales, quantizer.quantize

    def rows(self, values: torch.Tensor, lanes: int) -> Floats:
        """See :class:`interface.Quantizer`."""
        return self._quantizer.rows(values.cpu().numpy(), lanes)

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> torch.Tensor:
        """See :class:`interface.Quantizer`."""
        values = self._quantizer.dequantize(sums, counts, agreed, flags, mean=mean)
        return torch.from_numpy(values).to(self._device)


class OnDevice:
    """A quantizer whose rows are float32 torch tensors on one device; see :class:`interface.Quantizer`.

    Scales, integers and sums are numpy arrays, as for any other.
    """

    def __init__(self, scaled: Scaled, device: torch.device, using: ModuleType) -> None:
        self._scaled = scaled
        self._device = device
        self._kernels = using
        self._is_gpu = device.type == "cuda"
        self._pinned: dict[Any, torch.Tensor] = {}
        self.rows_per_chunk = scaled.rows_per_chunk

    def rows(self, values: torch.Tensor, lanes: int) -> torch.Tensor:
        """See :class:`interface.Quantizer`."""
        missing = -len(values) % (self.rows_per_chunk * lanes)
        whole = torch.nn.functional.pad(values, (0, missing)) if missing else values
        return whole.contiguous().view(-1, lanes)  # as the kernels' addresses demand

    def scales(self, rows: torch.Tensor) -> Integers:
        """See :class:`interface.Quantizer`."""
        bits = self._to_host("magnitudes", self._kernels.magnitudes(rows))
        return self._scaled.scales_of(bits.view(np.float32))

    def quantize(
        self, rows: torch.Tensor, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """See :class:`interface.Quantizer`. The integers are valid until the next call."""
        steps = self._scaled.steps(agreed)
        steps[np.isnan(self._scaled.steps(own))] = np.nan
        key = rounding.key if isinstance(rounding, Stochastic) else None
        limit = float(self._scaled.limit)
        words = self._kernels.pack(
            rows, self._to_device("steps", steps), self._scaled.packing, limit, key
        )
        return self._to_host("words", words), self._scaled.flags(own, agreed)

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> torch.Tensor:
        """See :class:`interface.Quantizer`."""
        if sums.dtype.itemsize > 4:  # sums made again in limbs: the kernels take int32
            wide = self._scaled.dequantize(sums, counts, agreed, flags, mean=mean)
            return torch.from_numpy(wide).to(self._device)
        steps = self._scaled.steps(agreed)
        steps[np.repeat(flags & Flag.NOT_FINITE != 0, self.rows_per_chunk)] = np.nan
        every = np.broadcast_to(counts, (len(sums), 1)).astype(np.int32).reshape(-1)
        values: torch.Tensor = self._kernels.unpack(
            self._to_device("sums", sums),
            self._to_device("counts", every),
            self._to_device("steps", steps),
            self._scaled.packing,
            mean=mean,
        )
        self._wait()  # until the pinned memory may be used again
        return values

    def _to_host(self, name: str, tensor: torch.Tensor) -> Any:
        """Return the tensor as a numpy array, once it has been copied."""
        if not self._is_gpu:
            return tensor.numpy()
        staging = self._staging(name, tensor.shape, tensor.dtype)
        staging.copy_(tensor, non_blocking=True)
        self._wait()
        return staging.numpy()

    def _to_device(self, name: str, array: Any) -> torch.Tensor:
        """Copy an array by way of pinned memory, so that nobody has to wait for the copy."""
        if not self._is_gpu:
            return torch.from_numpy(array.copy())
        staging = self._staging(name, array.shape, torch.from_numpy(array[:0].copy()).dtype)
        staging.numpy()[...] = array
        return staging.to(self._device, non_blocking=True)

    def _wait(self) -> None:
        """Wait for the end of this thread's stream."""
        if self._is_gpu:
            torch.cuda.current_stream(self._device).synchronize()

    def _staging(self, name: str, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        """Return pinned memory, which later calls with the same name, shape and dtype use again."""
        found = self._pinned.get(name)
        if found is None or found.shape != shape or found.dtype != dtype:
            found = self._pinned[name] = torch.empty(
                shape, dtype=dtype, device="cpu", pin_memory=True
            )
        return found
