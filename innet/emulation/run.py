"""A whole emulation, from the checks to the report. Nothing of it is left afterwards."""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from innet.emulation import requirements
from innet.emulation.control import JOB, Control, controlled, started
from innet.emulation.enclosure import cover, enclosed
from innet.emulation.launch import Ended, Launch, environment
from innet.emulation.meter import Meter, Sampler
from innet.emulation.plan import Plan, hosts_file, plan
from innet.emulation.report import LinkUse, Report
from innet.emulation.topology import load
from innet.errors import InnetError, UsageError
from innet.system.private import make_folder
from innet.terminal.app import print_error
from innet.terminal.console import PlainConsole
from innet.terminal.signals import INTERRUPTS, Stopped

_INTERRUPTED = 130
FOLDERS = Path("/run/innet")
"""The folder for the files of running emulations. Only root can write there."""
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True)
class Wishes:
    """The user's options beside the command."""

    prompt: bool = False
    plot: Path | None = None
    json: Path | None = None


def emulate(topology: Path, command: Sequence[str], wishes: Wishes) -> int:
    """Run a command on every host of a topology. Return the exit status.

    Raises UsageError before anything is done, or InnetError if the network could not be built.
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
    folders = make_folder(FOLDERS)
    remove_leftovers(folders)
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=folders) as folder:
        inside = _Inside(topology.stem, planned, command, wishes, Path(folder))
        return enclosed(inside.run)


@dataclass(frozen=True)
class _Inside:
    """The part of an emulation that runs in the enclosure."""

    name: str
    plan: Plan
    command: Sequence[str]
    wishes: Wishes
    folder: Path

    def run(self) -> int:
        """Run it, and return the exit status."""
        INTERRUPTS.catch()
        try:
            return self._emulate()
        except InnetError as problem:
            print_error(problem)
            return problem.exit_code
        except KeyboardInterrupt:
            return _INTERRUPTED

    def _emulate(self) -> int:
        from innet.emulation import network

        console = PlainConsole(soft_wrap=True, highlight=False)
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
        self,
        console: PlainConsole,
        status: Any,
        control: Control,
        meter: Meter,
        inside: dict[str, int],
    ) -> int:
        environments = [
            environment(self.plan, rank, control.address, JOB, control.token)
            for rank in range(len(self.plan.hosts))
        ]
        ends: list[Ended] = []
        interrupted: BaseException | None = None
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
            except (KeyboardInterrupt, Stopped) as interruption:
                interrupted = interruption
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
            raise interrupted
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


def _printer(console: PlainConsole, planned: Plan) -> Any:
    """Return a function that prints a host's output with its name in front."""
    width = max(len(host.name) for host in planned.hosts)
    colours = {host.name: _COLOURS[rank % len(_COLOURS)] for rank, host in enumerate(planned.hosts)}

    def say(host: str, line: str) -> None:
        console.print(Text(f"{host:<{width}} | ", colours[host]) + Text.from_ansi(line))

    return say


def _prompt(net: Any) -> None:
    """Show Mininet's prompt, until ``exit``."""
    from mininet.cli import CLI

    CLI(net)


def remove_leftovers(folders: Path) -> None:
    """Remove the folders that killed emulations have left in `folders`. Nothing else can be left.

    Links are not followed. Folders of other users are kept.
    """
    for folder in _leftovers(folders):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder)


def _leftovers(folders: Path) -> Iterator[Path]:
    for folder in folders.iterdir():
        found = re.fullmatch(r"(\d+)-\w+", folder.name)
        if found and not Path("/proc", found[1]).exists():
            yield folder
