"""The backend's settings from the environment, and the metrics that they ask for."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from innet.errors import UsageError
from innet.host.join import metrics_address
from innet.host.links import own_links
from innet.host.quantizers.spec import QuantizerSpec
from innet.machine import environment as names
from innet.machine.extras import needed_for
from innet.machine.numbers import is_number
from innet.machine.slurm import with_ranks
from innet.torch.messages import Message

_MOST_SLOTS = 2**32 - 1  # a request has 32 bits for them


@dataclass(frozen=True)
class Settings:
    """The controller's address, and the job to ask it for.

    `job` and `token` belong to an existing job, which the first group uses. `switch` and `slots`
    are for jobs that are created: empty means the only switch, 0 the default. `links` are those of
    this process. `alone` says why this rank does not sum in shared memory with others of its node,
    or is empty. Ranks with private sums do not sum there: every contribution to the switch has a
    pad of its own.
    """

    controller: str
    job: str
    token: str
    switch: str
    slots: int
    links: tuple[str, ...]
    tls: Path | None
    alone: str
    gather_job: bool

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """Read variables such as ``INNET_CONTROLLER``. Raises UsageError with a remedy."""
        controller = environment.get(names.CONTROLLER, "")
        if not controller:
            raise UsageError(
                "the backend innet has no controller: set INNET_CONTROLLER=HOST:PORT, or, to try it "
                "on one machine, start the script with `innet rack --workers N -- torchrun ...`"
            )
        slots = environment.get("INNET_SLOTS", "") or "0"
        if not is_number(slots) or int(slots) > _MOST_SLOTS or int(slots).bit_count() > 1:
            raise UsageError(f"INNET_SLOTS is {slots[:20]!r}: it has to be a power of two")
        quantizer = environment.get("INNET_QUANTIZER") or "int32"
        if QuantizerSpec.read(quantizer).feedback:
            raise UsageError(
                f"INNET_QUANTIZER is {quantizer}: error feedback has to know the tensor, and a process "
                "group does not: choose a quantizer without feedback, or "
                'register the hook, model.register_comm_hook((agent, "int8+feedback"), innet.ddp_hook)'
            )
        local_sum = environment.get(names.LOCAL_SUM) or "1"
        if local_sum not in ("0", "1"):
            raise UsageError(f"INNET_LOCAL_SUM is {local_sum!r}: it has to be 0 or 1")
        links = tuple(own_links(environment))
        gather_job = environment.get("INNET_GATHER_JOB", "") or str(int(links == ("host",)))
        if gather_job not in ("0", "1"):
            raise UsageError(f"INNET_GATHER_JOB is {gather_job!r}: it has to be 0 or 1")
        tls = environment.get(names.TLS, "")
        return cls(
            controller=controller,
            job=environment.get(names.JOB, ""),
            token=environment.get(names.TOKEN, ""),
            switch=environment.get("INNET_SWITCH", ""),
            slots=int(slots),
            links=links,
            tls=Path(tls) if tls else None,
            alone="INNET_LOCAL_SUM is 0"
            if local_sum == "0"
            else "its sums are private"
            if environment.get(names.PRIVATE_KEY_FILE)
            else "",
            gather_job=gather_job == "1",
        )


def with_local_rank(environment: Mapping[str, str], rank: int) -> Mapping[str, str]:
    """Return a process's environment with a local rank, given its rank in the default group.

    Some launchers set no ``LOCAL_RANK``, or not for every process. The local rank is then Slurm's,
    or else the rank. So no two processes of a machine take the same link.
    """
    if environment.get("LOCAL_RANK"):
        return environment
    task = with_ranks(environment)
    own = task.get("LOCAL_RANK") if task.get("RANK") == str(rank) else None
    return {**environment, "LOCAL_RANK": own or str(rank)}


def serve_counts(
    environment: Mapping[str, str], until: contextlib.ExitStack
) -> tuple[None, Message]:
    """Serve the counts of collectives `until` the stack is closed, if INNET_METRICS says so.

    The message is for the other processes. Raises UsageError.
    """
    if address := metrics_address(environment):
        with needed_for("metrics", "metrics"):
            from innet.host.metrics import exposed_too
            from innet.torch.metrics import COLLECTOR
        until.enter_context(exposed_too(COLLECTOR, address))
    return None, Message()
