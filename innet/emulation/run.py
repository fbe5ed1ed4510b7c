"""A whole emulation, from the checks to the report. Nothing of it is left afterwards."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from innet.emulation import requirements
from innet.emulation.controller import JOB, RunningController, set_up, start_controller
from innet.emulation.launch import HostExit, HostProcesses, environment
from innet.emulation.namespaces import bind_mount, run_in_namespaces
from innet.emulation.plan import Plan, hosts_file, plan
from innet.emulation.report import EmulationReport, LinkTraffic
from innet.emulation.topology import load
from innet.emulation.traffic import TrafficReader, TrafficSampler
from innet.errors import InnetError, UsageError
from innet.machine.private import make_folder
from innet.machine.scratch import scratch_folder
from innet.terminal.app import print_error
from innet.terminal.console import PlainConsole
from innet.terminal.signals import Stopped

RUN_FOLDER = Path("/run/innet")
"""The folder for the files of running emulations. Only root can write there."""
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True)
class Options:
    """The user's options beside the command."""

    prompt: bool = False
    plot: Path | None = None
    json: Path | None = None


def emulate(topology: Path, command: Sequence[str], options: Options) -> int:
    """Run a command on every host of a topology. Return the exit status.

    Raises UsageError for wrong arguments, and InnetError if no namespaces can be created. Errors inside
    the namespaces are printed, and determine the exit status.
    """
    planned = plan(load(topology))
    requirements.require(switch.kind for switch in planned.switches)
    if not command and not options.prompt:
        raise UsageError("nothing to run: give a command after --, or --cli for a prompt")
    for path in (options.plot, options.json):
        if path and not path.absolute().parent.is_dir():
            raise UsageError(f"cannot write to {path}: there is no folder {path.parent}")
        if path and path.is_dir():
            raise UsageError(f"cannot write to {path}: it is a folder")
    if options.plot:
        # If the package is missing, fail now and not at the end.
        from innet.emulation.plot import check_format

        check_format(options.plot)
    with scratch_folder(make_folder(RUN_FOLDER)) as folder:
        emulation = _Emulation(topology.stem, planned, command, options, folder)
        return run_in_namespaces(emulation.run)


@dataclass(frozen=True)
class _Emulation:
    """The part of an emulation that runs in its namespaces."""

    name: str
    plan: Plan
    command: Sequence[str]
    options: Options
    folder: Path

    def run(self) -> int:
        """Run the emulation, and return the exit status."""
        try:
            return self._emulate()
        except InnetError as problem:
            print_error(problem)
            return problem.exit_code

    def _emulate(self) -> int:
        from innet.emulation import network

        console = PlainConsole(soft_wrap=True, highlight=False)
        hosts = self.folder / "hosts"
        hosts.write_text(hosts_file(self.plan))
        bind_mount(hosts, Path("/etc/hosts"))
        with contextlib.ExitStack() as stack:
            status = stack.enter_context(console.status("building the network"))
            # The controller starts while the network is built.
            starting = stack.enter_context(start_controller(self.folder))
            net = stack.enter_context(network.running(self.plan, self.folder))
            status.update("programming the switches")
            p4runtime = {switch.name: switch.grpc_address for switch in net.switches}
            controller = stack.enter_context(set_up(starting, self.plan, p4runtime))
            pids = {node.name: node.pid for node in net.values()}
            code = 0
            if self.command:
                code = self._run_command(console, status, controller, pids)
            if self.options.prompt:
                status.stop()
                _prompt(net)
            return code

    def _run_command(
        self,
        console: PlainConsole,
        status: Any,
        controller: RunningController,
        pids: dict[str, int],
    ) -> int:
        """Run the command on every host, and show the report. Raises InnetError if a host fails."""
        reader = TrafficReader(self.plan.links, pids)
        processes = HostProcesses(pids, _printer(console, self.plan))
        exits: list[HostExit] = []
        interrupted: BaseException | None = None
        began = time.monotonic()
        sampling = TrafficSampler(reader.read) if self.options.plot else contextlib.nullcontext()
        with sampling as sampler:
            try:
                self._start(processes, controller)
                for each in processes.exits():
                    seconds = time.monotonic() - began
                    status.update(f"{len(exits)} of {len(self.plan.hosts)} hosts, {seconds:.0f} s")
                    exits += [each] if each else []
                    if each and each.failed:
                        break
            except (KeyboardInterrupt, Stopped) as interruption:
                interrupted = interruption
            finally:
                exits += processes.stop()
        seconds = time.monotonic() - began
        status.stop()
        report = self._report(controller, reader, exits, seconds)
        report.show(console)
        if self.options.json:
            report.write(self.options.json)
        if self.options.plot and sampler:
            from innet.emulation.plot import draw

            draw(sampler.samples, self.plan.links, self.options.plot)
        if interrupted:
            raise interrupted
        for failure in report.failures:
            raise InnetError(f"{failure.host}: {failure}; the other hosts were stopped")
        return 0

    def _start(self, processes: HostProcesses, controller: RunningController) -> None:
        for rank, host in enumerate(self.plan.hosts):
            variables = environment(self.plan, rank, controller.address, JOB, controller.token)
            processes.start(host.name, self.command, variables)

    def _report(
        self,
        controller: RunningController,
        reader: TrafficReader,
        exits: Sequence[HostExit],
        seconds: float,
    ) -> EmulationReport:
        traffic = reader.read()
        order = {host.name: rank for rank, host in enumerate(self.plan.hosts)}
        return EmulationReport(
            self.name,
            self.command,
            seconds,
            sorted(exits, key=lambda each: order[each.host]),
            controller.sums(),
            [LinkTraffic.of(link, traffic[link.child.interface]) for link in self.plan.links],
            requirements.offloads(switch.kind for switch in self.plan.switches),
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
