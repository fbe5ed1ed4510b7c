"""Joining a job: arguments and environment variables become an agent."""

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from innet.errors import UsageError
from innet.host.agent import Agent
from innet.host.fallback import Fallback, ProcessGroupFallback
from innet.host.job import Timeouts
from innet.host.links import own_links
from innet.host.membership import Membership
from innet.host.node import Node
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.waker import Waker
from innet.machine import environment as names
from innet.machine.extras import needed_for
from innet.machine.numbers import is_number
from innet.machine.slurm import with_ranks
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls as certificates
from innet.wire.layout import MOST_WORKERS

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_log = logging.getLogger("innet")


def join(
    controller: str | None = None,
    job: str | None = None,
    rank: int | None = None,
    link: str | None = None,
    *,
    token: str | None = None,
    tls: str | Path | None = None,
    fallback: "ProcessGroup | Fallback | None" = None,
    timeout: float = 30.0,
    timeouts: Timeouts | None = None,
    quantizer: str | None = None,
    node: Node | None = None,
    private_key_file: str | Path | None = None,
) -> Agent:
    """Become a worker of a job.

    Arguments that you leave out come from the environment:

    * `controller` (``host:port``, or several, separated by commas) from ``INNET_CONTROLLER``
    * `job` from ``INNET_JOB``, and its `token` from ``INNET_TOKEN``
    * `rank` from ``RANK``, as torchrun sets it, or from ``SLURM_PROCID``
    * `link` from ``INNET_LINK``, by default ``host``; see :func:`innet.host.links.own_links`
    * `tls`, the folder with this worker's certificates, from ``INNET_TLS``
    * `quantizer` from ``INNET_QUANTIZER``, by default ``int32``

    `fallback` is a process group of the job's workers, such as ``torch.distributed.group.WORLD``.
    They sum over it while the switch cannot. With a fallback this call returns only when all
    workers have made it.

    `timeout` bounds each step of joining, in seconds. `timeouts` bounds the duration of an
    all-reduce.

    `quantizer` is the format in which float32 travels, unless a call names another: ``int32``,
    ``int16``, ``int8`` or ``strom:TAU``, with ``+stochastic`` or ``+feedback``. All workers have to
    choose the same (docs/quantization.md).

    With a `node`, its workers sum in shared memory first. The job then has one worker of each node,
    and carries a slice (:mod:`innet.host.node_exchanges`). :mod:`innet.torch` passes this argument.

    `private_key_file`, from ``INNET_PRIVATE_KEY_FILE``, makes the sums private. It is a file of at least
    32 random bytes, which all workers of the job have and nobody else (docs/private-sums.md). It does
    not go with a `node`.

    With ``INNET_METRICS`` set to ``host:port`` the process serves Prometheus at that port plus
    ``LOCAL_RANK``.

    Raises UsageError if an argument is missing or wrong, ControllerUnreachable, NotAuthorized, or
    another ControllerError.
    """
    controller = controller or _from_environment(names.CONTROLLER, "controller")
    job = job or _from_environment(names.JOB, "job")
    environment = with_ranks(os.environ) if rank is None else os.environ
    rank = _rank(environment) if rank is None else rank
    if rank < 0:
        raise UsageError(f"rank {rank} is negative: ranks count from 0")
    if rank >= MOST_WORKERS:
        raise UsageError(f"rank {rank}: a job has at most {MOST_WORKERS} workers")
    link = link or own_links(environment)[0]
    token = os.environ.get(names.TOKEN, "") if token is None else token
    tls = tls or os.environ.get(names.TLS)
    identity = _identity(Path(tls)) if tls else None
    with contextlib.ExitStack() as undo:
        until_closed = undo.enter_context(contextlib.ExitStack())
        if fallback is not None and not isinstance(fallback, Fallback):
            fallback = ProcessGroupFallback(fallback)
            until_closed.callback(fallback.close)
        spec = QuantizerSpec.read(quantizer or os.environ.get("INNET_QUANTIZER") or "int32")
        secret = _secret(private_key_file or os.environ.get(names.PRIVATE_KEY_FILE))
        if node and secret:
            raise UsageError(
                "private sums need a pad on every worker's contribution, and the ranks of a node "
                f"contribute together: join without a node, or unset {names.PRIVATE_KEY_FILE}"
            )
        metrics = metrics_address(environment)
        request = pb.JoinRequest(job=job, rank=rank, token=token, fallback=fallback is not None)
        waker = Waker()
        undo.callback(waker.close)
        membership = Membership(controller, request, timeout, waker, identity)
        undo.push(lambda _, problem, __: membership.close(problem))
        agent = Agent(
            membership, link, waker, timeouts or Timeouts(), fallback, spec, node, secret, until_closed
        )  # fmt: skip
        undo.pop_all()  # from here on, the agent closes all of it
    if metrics:
        try:
            agent.show_metrics(job, metrics)
        except BaseException:
            agent.close(abandon=True)
            raise
    return agent


def _identity(folder: Path) -> certificates.Identity:
    identity = certificates.load(folder, certificates.WORKER)
    if certificates.ends_soon(identity.expires):
        _log.warning("the certificate %s ends soon, on %s", identity.certificate, identity.expires)
    return identity


def _secret(path: str | Path | None) -> bytes | None:
    if not path:
        return None
    with needed_for("private sums", "private"):
        from innet.host.private_sums import read_secret
    return read_secret(Path(path))


def _from_environment(name: str, what: str) -> str:
    if value := os.environ.get(name):
        return value
    raise UsageError(f"no {what} is given: pass it to join(), or set {name}")


def _rank(environment: Mapping[str, str]) -> int:
    value = environment.get("RANK")
    if not value:
        raise UsageError("no rank is given: pass it to join(), or set RANK")
    return _number("RANK", value)


def _number(name: str, value: str) -> int:
    if not is_number(value):
        raise UsageError(f"{name} is {value!r}: it has to be a number from 0 on")
    return int(value)


def metrics_address(environment: Mapping[str, str]) -> str:
    """Return the address at which this process serves metrics, or "". Raises UsageError."""
    setting = environment.get("INNET_METRICS", "")
    if not setting:
        return ""
    host, _, port = setting.rpartition(":")
    local_rank = _number("LOCAL_RANK", environment.get("LOCAL_RANK") or "0")
    if not (host and is_number(port) and int(port) + local_rank < 1 << 16):
        raise UsageError(
            f"INNET_METRICS is {setting!r}: it has to be HOST:PORT, to which LOCAL_RANK is added"
        )
    # Port 0 stands for any free port, in every process.
    return f"{host}:{int(port) and int(port) + local_rank}"
