"""Installing the program and an address on a switch without a running controller, to try it out.

The steps are those of a controller. So a controller that adds the switch later finds them done.
"""

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from innet.controller.state import validation
from innet.controller.switches.aggregation import AggregationSwitch
from innet.controller.switches.claims import check_unclaimed
from innet.controller.switches.election import Candidate, Id
from innet.controller.switches.rehearsal import rehearsal
from innet.controller.switches.targets.choice import find
from innet.controller.switches.transcript import Transcript
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls


def deploy(
    request: pb.AddSwitchRequest,
    identity: tls.Identity | None,
    write: Callable[[str], object],
    *,
    dry_run: bool,
    force: bool = False,
) -> None:
    """Prepare a switch as `innet switch add` would, and `write` down every request.

    With `dry_run` nothing leaves this process. The requests are then those for a switch without a
    program. With `force` the switch is taken from a controller that manages it, or has managed it.

    Raises UsageError, SwitchTaken if a controller manages the switch, or SwitchError if it refuses. An
    OSError of `write` is raised in the end, when the switch has received all requests.
    """
    validation.check_switch(request)
    target = find(request.target)
    record = validation.switch_record(request)
    program = target.program(record.lanes, record.artifact)
    transcript = Transcript(program.p4info, target.describe, write)
    unwritten: list[OSError] = []

    def note(method: str, request: Any) -> None:
        try:
            transcript(method, request)
        except OSError as problem:  # gRPC would make it the switch's fault
            unwritten.append(problem)

    with contextlib.ExitStack() as stack:
        if dry_run:
            address = stack.enter_context(rehearsal())
            record = replace(record, grpc_address=tls.INSECURE + address)
        if not force:
            check_unclaimed(record, identity, note)

        def connect(election: Id) -> AggregationSwitch:
            return AggregationSwitch(
                record, program, lambda *_: None, identity, election=election, on_request=note
            )

        candidate = Candidate(time.time_ns(), itertools.count(), forceful=force)
        with contextlib.closing(candidate.take_charge(connect, vacant_for_s=0)) as switch:
            switch.check_ports()
            switch.start()
            switch.hold([])
    if unwritten:
        raise unwritten[0]
