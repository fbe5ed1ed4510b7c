"""A replica of trainings with torchft, or lighthouses.

``program replica`` takes trainings as lines of JSON on its standard input, and says what happens as
lines of JSON, each with the time of the machine's monotonic clock. It says ``ready``, begins at
the next line, says ``trained``, and leaves at the next line. ``program lighthouses`` runs until it
is stopped.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torchft
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroup, ProcessGroupGloo

from benchmarks.replicas.settings import Training
from benchmarks.replicas.training import Digits, digest, network, stepping
from innet.torch.torchft import DeferredErrors, ProcessGroupInnet

LOCAL = "127.0.0.1"
JOIN_WITHIN_MS = 600_000
"""The time for which the lighthouse waits for a known replica, long enough for any slow one."""


def say(event: str, **facts: Any) -> None:
    """Write an event."""
    line = json.dumps({"event": event, "at": time.monotonic(), **facts})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def train(training: Training) -> None:
    """Take part in a training."""
    learning = training.learning
    model = network(learning.width, training.seed)
    optimizer = torch.optim.SGD(model.parameters(), learning.rate, learning.momentum)
    digits = Digits(training.digits, training.seed)
    timeout = timedelta(seconds=training.timeout_s)
    innet = training.over == "innet"
    group = _timed(
        ProcessGroupInnet(timeout) if innet else DeferredErrors(ProcessGroupGloo(timeout))
    )
    store = TCPStore(LOCAL, 0, is_master=True, wait_for_workers=False)

    # A replica that has missed a step gets it with the others' state, so all end at the same step.
    end = training.steps

    def load(state: dict[str, Any]) -> None:
        nonlocal end
        end = state["end"] if training.small else end
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=group,
        load_state_dict=load,
        state_dict=lambda: {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "end": end
        },
        min_replica_size=1, use_async_quorum=False, init_sync=False, timeout=timeout,
        quorum_timeout=timedelta(milliseconds=JOIN_WITHIN_MS),
        rank=0, world_size=1, store_addr=LOCAL, store_port=store.port, hostname=LOCAL,
        lighthouse_addr=training.lighthouse, replica_id=f"replica-{training.replica}",
    )  # fmt: skip

    def draw(done: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = manager.current_step() * learning.sync_every + done
        return digits.batch(learning.batch, number, training.replica)

    say("ready")
    sys.stdin.readline()
    say("begun")
    with stepping(learning, manager, model, optimizer) as step:
        while (before := manager.current_step()) < end:
            for done in range(learning.sync_every):
                step(partial(draw, done))
            committed = manager.current_step() > before
            if committed and training.small:
                few = manager.num_participants() <= training.small_size
                end = (
                    min(end, manager.current_step() - 1 + training.small) if few else training.steps
                )
            say(
                "committed" if committed else "discarded",
                step=manager.current_step(), participants=manager.num_participants(),
                error=repr(group.errored() or ""),
            )  # fmt: skip
    say("trained", digest=digest(model), loss=digits.loss(model))
    sys.stdin.readline()
    manager.shutdown(wait=False)
    group.shutdown()
    say("left")


def _timed(group: ProcessGroup) -> ProcessGroup:
    """Return the process group, changed so that it reports each new configuration."""
    configure = group.configure

    def timed(*arguments: Any, **more: Any) -> None:
        began = time.monotonic()
        configure(*arguments, **more)
        say("configured", seconds=time.monotonic() - began)

    group.configure = timed
    return group


def replica() -> None:
    """Take part in one training after the other, until the input ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        train(Training.read(line))
    os._exit(0)  # threads of torchft and Gloo may be at work


def lighthouses(number: str) -> None:
    """Run some lighthouses until SIGTERM."""
    servers = [
        LighthouseServer(
            bind=f"{LOCAL}:0", min_replicas=2, join_timeout_ms=JOIN_WITHIN_MS, quorum_tick_ms=100
        )
        for _ in range(int(number))
    ]
    ports = [each.address().rpartition(":")[2] for each in servers]  # not the machine's name
    sys.stdout.write(
        " ".join(["lighthouses", *(f"http://{LOCAL}:{port}" for port in ports)]) + "\n"
    )
    sys.stdout.flush()
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    if sys.argv[1] == "replica":
        replica()
    else:
        lighthouses(sys.argv[2])
