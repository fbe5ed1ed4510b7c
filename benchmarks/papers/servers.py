"""The servers of docs/pbox.md under the experiments: on a host of their own, or on every worker's."""

import contextlib
import socket

import torch.distributed as dist

from benchmarks.papers.common import Spec
from innet import pbox
from innet.training.transports.pbox import PBoxTransport

PORT = 19791
_CHUNK_BYTES = 4096
"""The paper's 32 KB are of networks of tens of megabytes, ours have tens of kilobytes."""


def serving(spec: Spec) -> contextlib.AbstractContextManager[object]:
    """What this host serves: ``pbox`` is on the first one, ``pbox-sharded`` on all."""
    if spec.over == "pbox-sharded" or idle(spec):
        return pbox.Server(_address(dist.get_rank()))
    return contextlib.nullcontext()


def idle(spec: Spec) -> bool:
    """Whether this host has no worker, but the server alone."""
    return spec.over == "pbox" and dist.get_rank() == 0


def pbox_transport(spec: Spec) -> PBoxTransport:
    """A worker's end. Every training is a job of its own."""
    hosts = range(dist.get_world_size())
    servers, before = (hosts[:1], 1) if spec.over == "pbox" else (hosts, 0)
    return PBoxTransport(
        [_address(rank) for rank in servers],
        job=f"{spec.label} {spec.seed}",
        rank=dist.get_rank() - before,
        workers=len(hosts) - before,
        chunk_bytes=_CHUNK_BYTES,
    )


def _address(rank: int) -> str:
    return f"{socket.gethostbyname(f'h{rank + 1}')}:{PORT}"
