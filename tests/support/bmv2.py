"""BMv2 as a process, and the exact mean that a switch has to give."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
from waiting import WITHIN

from innet.host.gathering import float_sums
from innet.host.quantizers.fixed_point import block_exponents, blocks, dequantize, quantize

BMV2 = "simple_switch_grpc"


@contextlib.contextmanager
def running_switch(
    at: list[str], command: list[str], ports: list[str], folder: Path
) -> Iterator[str]:
    """Start a switch with options that both switches take. Yields its P4Runtime address."""
    address = f"unix:{folder}/p4runtime"
    interfaces = [f"--interface={number}@{port}" for number, port in enumerate(ports, start=1)]
    target = ["--grpc-server-addr", address, "--cpu-port", "510", "--drop-port", "511"]
    with running([*at, *command, "--no-p4", "--device-id", "0", *interfaces, "--", *target]):
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(WITHIN)
        yield address


@contextlib.contextmanager
def running(
    command: list[str], stdout: int | None = None, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **environment}
    process = subprocess.Popen(command, text=True, stdout=stdout, env=environment)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def gathered_chunks(elements: int, workers: int, lanes: int) -> int:
    """Return the chunks of a float32 vector that is small enough to be gathered, else 0."""
    each = (lanes - 4) // workers  # elements in a chunk, beside four words
    chunks = max(1, -(-elements // each))
    return chunks if chunks <= 4 else 0


def exact_mean(vectors: tuple[np.ndarray, ...], lanes: int) -> np.ndarray:
    """Return the expected result for one vector of each worker."""
    if gathered_chunks(vectors[0].size, len(vectors), lanes):
        return float_sums(np.stack(vectors), np.ones((len(vectors), 1), bool), mean=True)
    parts = [blocks(vector, lanes) for vector in vectors]
    own = [block_exponents(part) for part in parts]
    agreed, workers = np.max(own, axis=0), len(parts)
    integers = [
        quantize(part, mine, agreed, workers) for part, mine in zip(parts, own, strict=True)
    ]
    sums = np.sum(integers, axis=0, dtype=np.int64).astype(np.int32)
    counts = np.full((len(sums), 1), workers, np.uint16)
    return dequantize(sums, agreed, workers, counts).reshape(-1)[: vectors[0].size]
