"""Findings on the screen."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.table import Column, Table
from rich.text import Text

from innet.observe.findings import Finding, Severity
from innet.observe.sample import Observation
from innet.rpc.words import PATHS, counted
from innet.terminal.console import PlainConsole

_STYLES = {
    Severity.PROBLEM: "bold red", Severity.WARNING: "yellow",
    Severity.NOTE: "cyan", Severity.GOOD: "green",
}  # fmt: skip
_WIDTH = max(len(severity.name) for severity in Severity)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 if nothing has to be done, 1 otherwise."""
    return 0 if all(finding.healthy for finding in findings) else 1


def plain(finding: Finding) -> dict[str, object]:
    """Return a finding as plain values."""
    return {**asdict(finding), "severity": finding.severity.name.lower()}


def show_diagnosis(
    console: PlainConsole, observation: Observation, findings: Sequence[Finding]
) -> None:
    """Print a job's state in one line, the findings, and their remedies."""
    console.print(_headline(observation))
    for finding in findings:
        console.print(_label(finding.severity), finding.statement)
        indent = " " * (_WIDTH + 1)
        for line in finding.evidence:
            console.print(f"{indent}- {line}")
        if finding.remedy:
            console.print(f"{indent}> {finding.remedy}", style="bold")
    if all(finding.healthy for finding in findings):
        console.print(_label(Severity.GOOD), "no problem found")


def show_checklist(console: PlainConsole, findings: Sequence[Finding]) -> None:
    """Print one line for every check, and the remedies of those that failed."""
    table = Table(
        Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold"), box=None,
        show_header=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for finding in findings:
        table.add_row(_label(finding.severity), finding.subject, finding.statement)
        if finding.remedy:
            table.add_row("", "", f"> {finding.remedy}", style="bold")
    console.print(table)


def _label(severity: Severity) -> Text:
    return Text(f"{severity.name.lower():{_WIDTH}}", _STYLES[severity])


def _headline(observation: Observation) -> str:
    job = observation.now.job
    done = max((each.progress.exchange for each in job.members), default=0)
    return (
        f"job {job.name} on {job.switch}: {len(job.joined)} of {counted(job.workers, 'worker')}, "
        f"term {job.term}, path {PATHS[job.path]}, {counted(job.slots, 'slot')} from {job.first_slot} "
        f"on, exchange {done}; looked at for {observation.seconds:.1f} s"
    )
