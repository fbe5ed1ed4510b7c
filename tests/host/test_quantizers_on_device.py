"""A device's part of a quantizer has numpy's bits, in PyTorch's operations and in Triton's kernels.

Without a GPU the tensors are on the CPU, and Triton's own interpreter runs the kernels.
"""

from types import ModuleType

import numpy as np
import pytest
import torch
from gradients import LARGEST, SMALLEST, gradients, seeds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quantizing import quantizer_names, usable
from torch._subclasses.fake_tensor import FakeTensorMode

from innet.host.quantizers import torch_kernels
from innet.host.quantizers.device import OnDevice, kernels, on_device
from innet.host.quantizers.residuals import Residuals
from innet.host.quantizers.rounding import Stochastic, nearest, random_bits
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.tensors import REDUCE_OPS, quantized_on_device
from innet.wire.layout import Flag

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LANES = 4


def triton_kernels() -> ModuleType:
    pytest.importorskip("triton", reason="Triton is not installed")
    from innet.host.quantizers import triton_kernels

    return triton_kernels


@pytest.fixture(scope="module", params=["torch", "triton"])
def using(request: pytest.FixtureRequest) -> ModuleType:
    return torch_kernels if request.param == "torch" else triton_kernels()


def test_only_sums_and_means_of_float32_become_integers_on_a_gpu():
    # An extreme that was quantized would come back as a sum. Tensors without data need no GPU.
    with FakeTensorMode():
        for device in ("cpu", "cuda"):
            for dtype in (torch.float32, torch.int32, torch.int64):
                tensor = torch.empty(3, dtype=dtype, device=device)
                there = {op for op in REDUCE_OPS if quantized_on_device(tensor, op)}
                fitting = device == "cuda" and dtype == torch.float32
                assert there == ({"sum", "mean"} if fitting else set())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of overflows to infinity
@settings(max_examples=25)
@given(gradients(), quantizer_names, seeds)
@example(np.full((18, 40), LARGEST), "int8", 0)
@example(np.full((31, 40), -LARGEST), "int32", 0)
@example(np.full((3, 5), SMALLEST), "int16", 0)
@example(np.zeros((1, 0), np.float32), "int8", 0)
@example(np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 127]], np.float32), "int8", 1)
def test_bits_are_those_of_numpy(using: ModuleType, gradient, text: str, seed: int):
    """Compare scales, integers, flags, sums and means, also for rows not finite, and with a quorum."""
    spec = QuantizerSpec.read(text)
    workers = usable(spec, len(gradient))
    rng, values = np.random.default_rng(seed), gradient[0].copy()
    if seed % 2 and values.size:
        values[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
    quantizer = spec.bind(workers)
    device = OnDevice(quantizer, DEVICE, using)
    tensor = torch.from_numpy(values).to(DEVICE)
    rows, theirs = quantizer.rows(values, LANES), device.rows(tensor, LANES)
    own = quantizer.scales(rows)
    assert device.scales(theirs).tobytes() == own.tobytes()
    zero, lost = quantizer.scales_of(np.float32([0, np.nan]))
    # Other workers' exponents are larger, or this worker came too late.
    agreed = own + rng.integers(-1, 2, own.size, np.int32) * ((own != zero) & (own != lost))
    agreed[(own == lost) & (rng.integers(2, size=own.size) == 0)] = zero
    rounding = Stochastic.of(0, 1, seed) if spec.stochastic else nearest
    integers, flags = quantizer.quantize(rows, own, agreed, rounding)
    packed, told = device.quantize(theirs, own, agreed, rounding)
    assert (packed.dtype, packed.tobytes()) == (np.int32, integers.tobytes())
    assert told.tobytes() == flags.tobytes()
    counts = rng.integers(1, workers + 1, (len(integers), 1)).astype(np.uint16)
    raised = np.where(rng.integers(4, size=len(flags)) == 0, Flag.NOT_FINITE, flags)
    for mean in (False, True):
        expected = quantizer.dequantize(
            integers, counts, agreed, raised.astype(np.uint16), mean=mean
        )
        got = device.dequantize(packed, counts, agreed, raised.astype(np.uint16), mean=mean)
        np.testing.assert_array_equal(got.cpu().numpy(), expected)


@pytest.mark.parametrize(
    "view",
    [lambda each: each[::2], lambda each: each.view(-1, 4)[:, 1], lambda each: each[:1].expand(64)],
    ids=["every second", "a column", "expanded"],
)
def test_views_of_other_memory_have_the_bits_of_their_values(using: ModuleType, view):
    """Their sizes are those of whole chunks, so nothing is added to them."""
    values = view(torch.arange(256.0, device=DEVICE) - 100)
    quantizer = QuantizerSpec.read("int8").bind(2)
    device = OnDevice(quantizer, DEVICE, using)
    expected = quantizer.rows(values.cpu().contiguous().numpy(), LANES)
    rows, own = device.rows(values, LANES), quantizer.scales(expected)
    assert device.scales(rows).tobytes() == own.tobytes()
    packed, _ = device.quantize(rows, own, own, nearest)
    assert packed.tobytes() == quantizer.quantize(expected, own, own, nearest)[0].tobytes()


@given(st.integers(0, 2**64 - 1))
def test_random_bits_are_those_of_numpy(key: int):
    bits = torch_kernels.random_bits(key, 50, DEVICE).cpu().numpy()
    assert bits.view(np.uint32).tolist() == random_bits(key, 0, 50).tolist()


def test_triton_serves_where_it_can(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert kernels(256) is torch_kernels
    monkeypatch.undo()
    assert kernels(100) is torch_kernels
    found = triton_kernels()
    assert kernels(256) is found


def test_what_a_device_does_not_do_is_done_on_the_cpu():
    quantizer = QuantizerSpec.read("strom:0.5").bind(2)
    device = on_device(quantizer, DEVICE, LANES)
    rows = device.rows(torch.tensor([1.0, -1.0, 0.25], device=DEVICE), LANES)
    integers, flags = device.quantize(rows, device.scales(rows), device.scales(rows), nearest)
    once = np.ones((1, 1), np.uint16)
    values = device.dequantize(integers, once, device.scales(rows), flags, mean=False)
    assert values.device.type == DEVICE.type
    assert values.reshape(-1)[:3].tolist() == [0.5, -0.5, 0]


def test_residuals_are_kept_on_the_device():
    kept, counted = Residuals(), np.array([True, True, False, True])
    given_one = torch.tensor([1, 2, 3, torch.nan], device=DEVICE)
    kept.keep("w", given_one, torch.tensor([0.75, 2.5, 3, 0], device=DEVICE), counted)
    added = kept.added("w", torch.zeros(4, device=DEVICE))
    assert added.device.type == DEVICE.type
    assert added.tolist() == [0.25, -0.5, 3, 0]
