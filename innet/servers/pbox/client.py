"""The worker's side of a parameter server: push gradients, pull parameters."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np

from innet.errors import (
    ClientClosed,
    NoCapacity,
    ParameterServerError,
    ServerLost,
    UsageError,
    WorkerLost,
)
from innet.machine.forks import Owner
from innet.machine.threads import OwnedLock
from innet.servers.pbox import native
from innet.servers.pbox.connections import Connections, CoreConnection, closed, open_connections
from innet.servers.pbox.keys import Arrays, Keys
from innet.servers.pbox.messages import Registration
from innet.servers.pbox.optimizers import Optimizer
from innet.servers.pbox.placement import CHUNK_BYTES
from innet.servers.pbox.protocol import VIOLATIONS, Kind, Outcome
from innet.servers.pbox.secured import ClientTls

_SLICE_MS = 100
_SERVERS_SLACK_S = 5.0


def connect(
    addresses: str | Sequence[str],
    *,
    job: str,
    rank: int,
    workers: int,
    keys: Sequence[int] | Mapping[str, int],
    token: str = "",
    optimizer: Optimizer | None = None,
    initial: Arrays | None = None,
    mode: str = "sync",
    quorum: int = 0,
    reduction: str = "mean",
    chunk_bytes: int = CHUNK_BYTES,
    timeout: float = 60.0,
    tls: Path | None = None,
) -> "Client":
    """Join a job on parameter servers, and return when the parameters have their initial values.

    The first worker to come creates the job. All workers must describe it alike, except for `rank`
    and `initial`.

    - `addresses`: HOST:PORT of every server, in the same order for all workers.
    - `job`, `token`: the job's name, and a secret that only its workers know.
    - `rank`, `workers`: this worker's number, 0 to `workers` - 1, and the number of workers, up to
      256.
    - `keys`: the number of float32 in each key, in order. A mapping also gives the keys names.
    - `optimizer`: the update rule that the servers apply to the gradients. Without one, results are
      the gradients' sums or means.
    - `initial`: the parameters to begin with, one float32 array per key. Only rank 0's are used;
      the default is zeros.
    - `mode`: with ``"sync"`` a step has the gradients of all workers, or of the first `quorum` of
      them (0: all). A later worker gets the parameters, and its gradient is dropped. With
      ``"async"`` every gradient is a step of its own.
    - `reduction`: ``"mean"`` or ``"sum"`` of the gradients of one step. An asynchronous step has
      only one gradient.
    - `chunk_bytes`: the size of the chunks that keys are cut into.
    - `timeout`: seconds. Servers wait so long for a worker that keeps others waiting. This worker
      waits so long for a server.
    - `tls`: a folder with a worker's certificate, for servers that were started with ``--tls``.

    Raises UsageError, NotAuthorized, AlreadyExists (the rank is taken), NoCapacity (no memory for
    the job or its client), ServerLost (no server answers) and WorkerLost (worker 0 did not send the
    initial values).
    """
    if not addresses:
        raise UsageError("no parameter server: give the address of at least one, HOST:PORT")
    for name, value, allowed in (
        ("mode", mode, ("sync", "async")),
        ("reduction", reduction, ("mean", "sum")),
    ):
        if value not in allowed:
            raise UsageError(f"{name} is {value!r}: it has to be {' or '.join(allowed)}")
    names, sizes = (
        (tuple(keys), tuple(keys.values()))
        if isinstance(keys, Mapping)
        else (tuple(map(str, range(len(keys)))), tuple(keys))
    )
    if not sizes:
        raise UsageError("there are no keys: a job needs at least one")
    registration = Registration(
        job=job,
        token=token,
        rank=rank,
        workers=workers,
        quorum=quorum or workers,
        asynchronous=mode == "async",
        mean=reduction == "mean",
        names=names,
        sizes=tuple(map(int, sizes)),
        chunk_bytes=chunk_bytes,
        cores=(1,),
        server=0,
        timeout_s=timeout,
        optimizer=optimizer.settings() if optimizer else None,
    )
    registration.check()
    if initial is not None:
        if not optimizer:
            raise UsageError("initial parameters need an optimizer: give one as well")
        Keys(registration.names, registration.sizes).check("initial", initial)
    connections, cores = open_connections(
        [addresses] if isinstance(addresses, str) else addresses,
        registration,
        timeout,
        ClientTls(tls) if tls else None,
    )
    try:
        client = Client(connections, cores, registration, optimizer.lr if optimizer else 0.0)
    except BaseException:
        connections.close(goodbye=False)
        raise
    try:
        client._begin(initial)  # noqa: SLF001 - it is not for others
    except BaseException:
        client.close()
        raise
    return client


class Client:
    """A worker's connection to a job, made by :func:`connect`.

    Arrays are float32, C-contiguous, one per key, in the order of the keys. A gradient array may be
    its own result array. Threads may share a client: it runs one exchange at a time.

    After any error but UsageError the client cannot be used any more: close it and connect anew.
    The constructor raises NoCapacity if there is no memory.
    """

    def __init__(
        self,
        connections: Connections,
        cores: Sequence[CoreConnection],
        registration: Registration,
        rate: float,
    ) -> None:
        self.rank, self.workers = registration.rank, registration.workers
        self.lr = rate
        """The learning rate of the calls that follow. It must be the same for all workers of a step."""
        self._keys = Keys(registration.names, registration.sizes)
        self._timeout = registration.timeout_s + _SERVERS_SLACK_S
        self._optimizes = registration.optimizer is not None
        self._connections = connections
        self._library = native.library()
        self._exchanging = OwnedLock()
        self._freeing = threading.Lock()  # taken after _exchanging
        self._closing = threading.Event()
        self._owner = Owner(self)
        self._broken: Exception | None = None
        self._executor = ThreadPoolExecutor(1, "pbox client")  # starts a thread on first use
        controls = np.array([each.fileno() for each in connections.controls], np.int32)
        self._client = self._library.client_new(len(cores), len(controls), native.address(controls))
        if not self._client or not all(map(self._set_core, range(len(cores)), cores)):
            if self._client:
                self._library.client_free(self._client)
            raise NoCapacity("this machine has no memory for a client: use more servers")

    def push_pull(
        self, gradients: Arrays, out: Arrays | None = None, *, keys: Sequence[int] | None = None
    ) -> None:
        """Push gradients, wait for the step, and put the new parameters into `out` (or `gradients`).

        Without an optimizer the results are the sums or means. With `keys`, both lists are of these
        keys only, by number, in this order. Raises UsageError for arrays that do not fit,
        ServerLost, WorkerLost, and ClientClosed.
        """
        self._push_pull(gradients, out, keys, self.lr)

    def _push_pull(
        self, gradients: Arrays, out: Arrays | None, keys: Sequence[int] | None, rate: float
    ) -> None:
        self._keys.check("gradients", gradients, keys, writeable=out is None)
        if out is not None:
            self._keys.check("out", out, keys, writeable=True)
        self._exchange(Kind.PUSH, gradients, gradients if out is None else out, keys, rate)

    def submit(
        self, gradients: Arrays, out: Arrays | None = None, *, keys: Sequence[int] | None = None
    ) -> "Future[None]":
        """Run :meth:`push_pull` in the background, in the order of the calls.

        Leave the arrays alone until the future is done. With `keys`, all workers of a synchronous
        job must submit in the same order. Raises NoCapacity if there are too many threads.
        """
        self._check_usable()
        try:
            return self._executor.submit(self._push_pull, gradients, out, keys, self.lr)
        except RuntimeError:
            self._check_usable()  # another thread may have closed the client
            problem = NoCapacity(
                "no thread can be started for a step: raise the limit (`ulimit -u`)"
            )
            self._break(problem)  # the executor would make this step before the next one
            raise problem from None

    def pull(self, out: Arrays, *, keys: Sequence[int] | None = None) -> None:
        """Put the present parameters into `out`, without a step. Raises as :meth:`push_pull`."""
        self._keys.check("out", out, keys, writeable=True)
        self._exchange(Kind.PULL, out, out, keys)

    def counts(self) -> dict[str, int]:
        """Return the servers' counts for the job, over all workers, in chunks.

        ``updates`` counts steps and ``late`` gradients that came after a quorum. ``stale`` sums up
        by how many updates gradients were behind, and ``most_stale`` is the largest of these
        numbers. Raises ServerLost, or the error that has ended the job.
        """
        with self._exchanging:
            self._check_usable()
            connections = self._connections
            try:
                found = [
                    connections.ask(each, {"counts": True}, "counts")
                    for each in connections.servers
                ]
            except BaseException as problem:
                self._break(problem)
                raise
        totals = {name: sum(each[name] for each in found) for name in found[0]}
        return {**totals, "most_stale": max(each["most_stale"] for each in found)}

    @property
    def bytes_moved(self) -> int:
        """Return the bytes sent and received so far, including headers."""
        with self._freeing:
            return int(self._library.client_bytes(self._client)) if self._client else 0

    def close(self) -> None:
        """Leave the job, and end this client's exchanges. May be called twice.

        In a forked child this does nothing: the connection belongs to the parent. In a signal handler
        it only ends the call that the signal has interrupted. The next close does the rest.
        """
        if self._owner.here:
            self._closing.set()
        if not self._owner.here or self._exchanging.held_here:
            return
        with contextlib.suppress(RuntimeError):  # a callback cannot wait for its own thread to end
            self._executor.shutdown()
        with self._exchanging:
            if not self._client:
                return
            self._connections.close(goodbye=self._broken is None)
            with self._freeing:
                self._library.client_free(self._client)
                self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set_core(self, number: int, core: CoreConnection) -> bool:
        made: bool = self._library.client_set_core(
            self._client, number, core.sock.fileno(), len(core.pieces), native.address(core.pieces)
        )
        return made

    def _begin(self, initial: Arrays | None) -> None:
        """Send the initial values if this is rank 0, and wait until all servers have them."""
        silent = None
        if self.rank == 0 and self._optimizes:
            if initial is not None:
                self._exchange(Kind.INIT, initial, initial, None)
            self._connections.tell_all({"initialised": True})
        elif self._optimizes:
            silent = WorkerLost(
                "worker 0 has not sent the initial values in time: start it sooner, or connect with a "
                "longer timeout="
            )
        self._connections.await_ready(silent)

    def _exchange(
        self,
        kind: int,
        gradients: Arrays,
        out: Arrays,
        keys: Sequence[int] | None,
        rate: float = 0.0,
    ) -> None:
        with self._exchanging:
            self._check_usable()
            count = len(self._keys.sizes)
            numbers = self._keys.numbers(keys)
            source, target = (ctypes.c_void_p * count)(), (ctypes.c_void_p * count)()
            wanted = np.zeros(count, np.bool_)
            for key, gradient, result in zip(numbers, gradients, out, strict=True):
                source[key], target[key] = native.address(gradient), native.address(result)
                wanted[key] = True
            try:
                self._library.client_begin(
                    self._client, kind, source, target, native.address(wanted), float(rate)
                )
                self._finish()
            except BaseException as problem:
                self._break(problem)
                raise

    def _break(self, problem: BaseException) -> None:
        """Refuse further calls because of this error."""
        self._broken = (
            problem
            if isinstance(problem, Exception)
            else ParameterServerError("an exchange was interrupted")
        )

    def _finish(self) -> None:
        moved, since = -1, time.monotonic()
        while True:
            outcome = self._library.client_exchange(self._client, _SLICE_MS)
            if outcome == Outcome.DONE:
                return
            if outcome != Outcome.AGAIN:
                raise self._failure(outcome)
            if self._closing.is_set():
                raise ClientClosed("the client was closed while an exchange was under way")
            if (now := self.bytes_moved) != moved:
                moved, since = now, time.monotonic()
            elif time.monotonic() - since > self._timeout:
                raise ServerLost(
                    f"the parameter servers at {self._connections.names} have sent nothing for "
                    f"{self._timeout:g} s: are they running?"
                )

    def _failure(self, outcome: int) -> Exception:
        which = int(self._library.client_which(self._client))
        server = which if outcome == Outcome.TOLD else self._connections.server_of_core[which]
        if why := self._connections.sent_error(server):
            return why
        name = self._connections.addresses[server]
        if outcome == Outcome.REFUSED:
            rule = VIOLATIONS[int(self._library.client_why(self._client)) % len(VIOLATIONS)]
            return ParameterServerError(f"the parameter server at {name} refused a frame: {rule}")
        if outcome == Outcome.CONFUSED:
            return ParameterServerError(
                f"the parameter server at {name} has sent an answer to another request: connect again"
            )
        return ServerLost(closed(name))

    def _check_usable(self) -> None:
        self._owner.check("the client", ClientClosed)
        if self._closing.is_set() or not self._client:
            raise ClientClosed("the client is closed: connect again")
        if self._broken:
            raise ParameterServerError(
                f"the client cannot be used after an error, so close it and connect again: {self._broken}"
            ) from self._broken
