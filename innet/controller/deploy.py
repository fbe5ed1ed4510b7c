"""Giving a switch the program and an address, without a controller that goes on: to try it out.

The way is a controller's own, so that one which comes later, with the same switch, finds it done.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from innet import tls
from innet.controller import innet_pb2 as pb
from innet.controller import limits
from innet.controller.aggregation import AggregationSwitch
from innet.controller.rehearsal import rehearsal
from innet.controller.targets.choice import find
from innet.controller.transcript import Transcript


def deploy(
    request: pb.AddSwitchRequest,
    identity: tls.Identity | None,
    write: Callable[[str], object],
    *,
    dry_run: bool,
) -> None:
    """Do to a switch what adding it does, and `write` down every request.

    With `dry_run` nothing leaves this process: the requests are those to a switch that has no program
    yet. Raises UsageError, or SwitchError if the switch refuses.
    """
    limits.check_switch(request)
    target = find(request.target)
    record = limits.switch_record(request)
    program = target.program(record.lanes, record.artifact)
    transcript = Transcript(program.p4info, target.describe, write)
    with contextlib.ExitStack() as stack:
        if dry_run:
            address = stack.enter_context(rehearsal())
            record = replace(record, grpc_address=tls.INSECURE + address)
        switch = AggregationSwitch(record, program, lambda *_: None, identity, heard=transcript)
        with contextlib.closing(switch):
            switch.start()
            switch.hold([])
