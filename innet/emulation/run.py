"""A whole emulation, in order: check, build, start, run, report, and nothing is left."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from innet.demo.rack import INTERRUPTS
from innet.emulation import requirements
from innet.emulation.control import JOB, Control, controlled, started
from innet.emulation.enclosure import cover, enclosed
from innet.emulation.launch import Ended, Launch, environment
from innet.emulation.meter import Meter, Sampler
from innet.emulation.plan import Plan, hosts_file, plan
from innet.emulation.report import LinkUse, Report
from innet.emulation.topology import load
from innet.errors import InnetError, UsageError

_INTERRUPTED = 130
_FOLDER = "innet-emulate-"
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True)
class Wishes:
    """What the user asks for beside the command."""

    prompt: bool = False
    plot: Path | None = None
    json: Path | None = None


def emulate(topology: Path, command: Sequence[str], wishes: Wishes) -> int:
    """Run a command on every host of a topology. Returns the exit status.

    Raises UsageError before anything is done, or InnetError if it could not be built.
    """
    planned = plan(load(topology))
    requirements.require(switch.kind for switch in planned.switches)
    if not command and not wishes.prompt:
        raise UsageError("nothing to run: give a command after --, or --cli for a prompt")
    for path in (wishes.plot, wishes.json):
        if path and not path.absolute().parent.is_dir():
            raise UsageError(f"cannot write to {path}: there is no folder {path.parent}")
    if wishes.plot:
        import matplotlib  # noqa: F401, ICN001 - it had better be missing now than at the end
    remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        inside = _Inside(topology.stem, planned, command, wishes, Path(folder))
        return enclosed(inside.run)


@dataclass(frozen=True)
class _Inside:
    """What happens in the enclosure."""

    name: str
    plan: Plan
    command: Sequence[str]
    wishes: Wishes
    folder: Path

    def run(self) -> int:
        """Returns the exit status."""
        INTERRUPTS.catch()
        errors = Console(stderr=True, soft_wrap=True)
        try:
            return self._emulate()
        except InnetError as problem:
            errors.print(f"error: {problem}", markup=False)
            return problem.exit_code
        except KeyboardInterrupt:
            return _INTERRUPTED

    def _emulate(self) -> int:
        from innet.emulation import network

        console = Console(soft_wrap=True, highlight=False)
        names = self.folder / "hosts"
        names.write_text(hosts_file(self.plan))
        cover(Path("/etc/hosts"), by=names)
        with contextlib.ExitStack() as stack:
            status = stack.enter_context(console.status("building the network"))
            starting = stack.enter_context(started(self.folder))  # while the network is built
            net = stack.enter_context(network.running(self.plan, self.folder))
            status.update("programming the switches")
            p4runtime = {switch.name: switch.grpc_address for switch in net.switches}
            control = stack.enter_context(controlled(starting, self.plan, p4runtime))
            inside = {node.name: node.pid for node in net.values()}
            meter = Meter(self.plan.links, inside)
            code = 0
            if self.command:
                code = self._run_command(console, status, control, meter, inside)
            if self.wishes.prompt:
                status.stop()
                _prompt(net)
            return code

    def _run_command(
        self, console: Console, status: Any, control: Control, meter: Meter, inside: dict[str, int]
    ) -> int:
        environments = [
            environment(self.plan, rank, control.address, JOB, control.token)
            for rank in range(len(self.plan.hosts))
        ]
        ends: list[Ended] = []
        interrupted = False
        launch = Launch(inside, _printer(console, self.plan))
        began = time.monotonic()
        with Sampler(meter.read) if self.wishes.plot else contextlib.nullcontext() as sampler:
            try:
                for host, variables in zip(self.plan.hosts, environments, strict=True):
                    launch.start(host.name, self.command, variables)
                for ended in launch.ends():
                    seconds = time.monotonic() - began
                    status.update(f"{len(ends)} of {len(environments)} hosts, {seconds:.0f} s")
                    ends += [ended] if ended else []
                    if ended and ended.failed:
                        break
            except KeyboardInterrupt:
                interrupted = True
            finally:
                ends += launch.stop()
        seconds = time.monotonic() - began
        status.stop()
        report = self._report(control, meter, ends, seconds)
        report.show(console)
        if self.wishes.json:
            report.write(self.wishes.json)
        if self.wishes.plot and sampler:
            from innet.emulation.plot import draw

            draw(sampler.samples, self.plan.links, self.wishes.plot)
        if interrupted:
            raise KeyboardInterrupt
        for failure in report.failures:
            raise InnetError(f"{failure.host}: {failure}; the other hosts were stopped")
        return 0

    def _report(
        self, control: Control, meter: Meter, ends: Sequence[Ended], seconds: float
    ) -> Report:
        traffic = meter.read()
        order = {host.name: rank for rank, host in enumerate(self.plan.hosts)}
        return Report(
            self.name,
            self.command,
            seconds,
            sorted(ends, key=lambda each: order[each.host]),
            control.sums(),
            [LinkUse.of(link, traffic[link.name]) for link in self.plan.links],
        )


def _printer(console: Console, planned: Plan) -> Any:
    """Prints what a host says with its name in front."""
    width = max(len(host.name) for host in planned.hosts)
    colours = {host.name: _COLOURS[rank % len(_COLOURS)] for rank, host in enumerate(planned.hosts)}

    def say(host: str, line: str) -> None:
        console.print(Text(f"{host:<{width}} | ", colours[host]) + Text.from_ansi(line))

    return say


def _prompt(net: Any) -> None:
    """Mininet's prompt, until ``exit``."""
    from mininet.cli import CLI

    CLI(net)


def remove_leftovers() -> None:
    """Folders of emulations that were killed: nothing else of them can be left."""
    for folder in _leftovers():
        with contextlib.suppress(OSError):
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()


def _leftovers() -> Iterator[Path]:
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        found = re.fullmatch(rf"{_FOLDER}(\d+)-\w+", folder.name)
        if found and not Path("/proc", found[1]).exists():
            yield folder
