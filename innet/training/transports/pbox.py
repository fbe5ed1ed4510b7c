"""A transport over separate parameter servers, ``innet pbox serve``, for gradients and a centre.

Every centre of an algorithm is a job on the servers. So is every size of vector whose mean is
computed, and every broadcast. The algorithm's own server defines the use of the gradients
(:meth:`innet.training.server.CentreServer.rule`). It is made only for its rule and its initial
values, and never serves.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innet.servers import pbox
from innet.servers.pbox.placement import CHUNK_BYTES
from innet.training.served_optimizers import served
from innet.training.server import CentreServer
from innet.training.transports.base import Background, CentreClient, Transport


class PBoxTransport(Transport):
    """A network between the workers of a job over the parameter servers at `addresses`, HOST:PORT.

    `job` must be a name that no other training on these servers has. `token` is a secret that only
    its workers know. `timeout` is in seconds. `tls` is a folder with a worker's certificate, for
    servers that were started with ``--tls``. Supported are PS-Sync, async SGD (with momentum, and
    Hogwild's), n-softsync with n = 1 or all workers, and the algorithms that use means.

    Servers cut a vector into chunks of `chunk_bytes`, and update and answer them one by one. So
    asynchronous workers may see a centre in which one chunk is newer than another.

    Raises the errors of :func:`innet.servers.pbox.connect`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        job: str,
        rank: int,
        workers: int,
        token: str = "",
        timeout: float = 600.0,
        chunk_bytes: int = CHUNK_BYTES,
        tls: Path | None = None,
    ) -> None:
        self.rank, self.workers = rank, workers
        self._addresses, self._job, self._token, self._timeout = addresses, job, token, timeout
        self._chunk_bytes, self._tls = chunk_bytes, tls
        self._background = Background(f"innet-pbox-{rank}")
        self._jobs = 0
        self._means: dict[int, pbox.Client] = {}
        self._open: list[pbox.Client] = []

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean at the servers. Every size of vector is a job of its own."""
        return self._background.run(self._mean, vector)

    def broadcast(self, vector: Tensor) -> Tensor:
        """Return worker 0's vector, which is the initial value of a job."""
        copy = vector.clone()
        joined = self._join(
            self._next_name(),
            vector.numel(),
            optimizer=pbox.SGD(),
            initial=[vector.numpy()] if not self.rank else None,
        )
        with joined as client:
            client.pull([copy.numpy()])
            self._leave_together(client, vector.numel())
        return copy

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Return a client of a job that follows the rule of the server that `make` returns."""
        server = make()
        rule = server.rule()
        client = self._join(
            self._next_name(),
            size,
            optimizer=served(rule.like),
            initial=[server.centre.numpy()] if not self.rank else None,
            mode="async" if rule.asynchronous else "sync",
        )
        return _PBoxClient(client, size, self._background)

    def close(self, *, abandon: bool = False) -> None:
        """Leave the jobs."""
        self._background.close(abandon=abandon)
        for client in self._open:
            client.close()

    def _mean(self, vector: Tensor) -> Tensor:
        size = vector.numel()
        if size not in self._means:
            self._means[size] = self._join(f"mean-{size}", size)
        mean = torch.empty_like(vector)
        self._means[size].push_pull([vector.numpy()], [mean.numpy()])
        return mean

    def _leave_together(self, client: pbox.Client, size: int) -> None:
        """Make an empty step, so that no worker ends the job before the others have joined."""
        client.lr = 0.0
        nothing = torch.zeros(size).numpy()
        client.push_pull([nothing])

    def _next_name(self) -> str:
        """Return the name of a new job, the same at all workers, which make the same calls."""
        self._jobs += 1
        return str(self._jobs)

    def _join(self, name: str, size: int, **options: Any) -> pbox.Client:
        client = pbox.connect(
            self._addresses, job=f"{self._job}-{name}", rank=self.rank, workers=self.workers,
            keys=[size], token=self._token, timeout=self._timeout, chunk_bytes=self._chunk_bytes,
            tls=self._tls, **options,
        )  # fmt: skip
        self._open.append(client)
        return client


class _PBoxClient:
    """A worker's connection to one job."""

    def __init__(self, client: pbox.Client, size: int, background: Background) -> None:
        self._client, self._size, self._background = client, size, background

    def pull(self) -> Tensor:
        """Return the centre."""
        centre = torch.empty(self._size)
        self._client.pull([centre.numpy()])
        return centre

    def push_pull(self, vector: Tensor, rate: float) -> Tensor:
        """Push the gradient, wait for the update, and return the centre."""
        centre = torch.empty(self._size)
        self._client.lr = rate
        self._client.push_pull([vector.numpy()], [centre.numpy()])
        return centre

    def submit(self, vector: Tensor, rate: float) -> Future[Tensor]:
        """Run :meth:`push_pull` in the communication thread."""
        return self._background.run(lambda given: self.push_pull(given, rate), vector)

    def push(self, vector: Tensor, rate: float) -> None:
        """Push the gradient and ignore the answer: these servers always answer."""
        self.push_pull(vector, rate)

    def close(self) -> None:
        """Leave the job."""
        self._client.close()
