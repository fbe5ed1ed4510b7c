"""The servers of docs/pbox.md in the experiments: on a host of their own, or on every worker's host."""

import contextlib
import socket

import torch.distributed as dist

from benchmarks.papers.common import Spec
from innet.servers import pbox
from innet.training.transports.pbox import PBoxTransport

PORT = 19791
_CHUNK_BYTES = 4096
"""The paper's 32 KB suit networks of tens of megabytes. Ours have tens of kilobytes."""


def serving(spec: Spec) -> contextlib.AbstractContextManager[object]:
    """Run this host's server, if it has one: ``pbox`` on the first host, ``pbox-sharded`` on all."""
    if spec.over == "pbox-sharded" or idle(spec):
        return pbox.Server(_address(dist.get_rank()))
    return contextlib.nullcontext()


def idle(spec: Spec) -> bool:
    """Return whether this host has only the server and no worker."""
    return spec.over == "pbox" and dist.get_rank() == 0


def pbox_transport(spec: Spec) -> PBoxTransport:
    """Return a worker's transport. Every training is a job of its own."""
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
