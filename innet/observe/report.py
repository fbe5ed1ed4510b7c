"""Findings on the screen."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from innet.controller.views import PATHS
from innet.observe.findings import Finding, Severity
from innet.observe.sample import View

_STYLES = {
    Severity.PROBLEM: "bold red", Severity.WARNING: "yellow",
    Severity.NOTE: "cyan", Severity.GOOD: "green",
}  # fmt: skip
_WIDTH = max(len(severity.name) for severity in Severity)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if nothing has to be done, 1 otherwise."""
    return 0 if all(finding.healthy for finding in findings) else 1


def show_diagnosis(console: Console, view: View, findings: Sequence[Finding]) -> None:
    """A job in a line, what was found, and what to do."""
    console.print(Text(_headline(view)))
    for finding in findings:
        console.print(_label(finding.severity), Text(finding.what))
        indent = " " * (_WIDTH + 1)
        for line in finding.evidence:
            console.print(Text(f"{indent}- {line}"))
        if finding.remedy:
            console.print(Text(f"{indent}> {finding.remedy}", "bold"))
    if all(finding.healthy for finding in findings):
        console.print(_label(Severity.GOOD), Text("no problem found"))


def show_checklist(console: Console, findings: Sequence[Finding]) -> None:
    """One line for every check, and what to do about those that failed."""
    table = Table(
        Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold"), box=None,
        show_header=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for finding in findings:
        table.add_row(_label(finding.severity), finding.subject, Text(finding.what))
        if finding.remedy:
            table.add_row("", "", Text(f"> {finding.remedy}", "bold"))
    console.print(table)


def _label(severity: Severity) -> Text:
    return Text(f"{severity.name.lower():{_WIDTH}}", _STYLES[severity])


def _headline(view: View) -> str:
    job = view.now.job
    done = max((each.progress.exchange for each in job.members), default=0)
    return (
        f"job {job.name} on {job.switch}: {len(job.joined)} of {job.workers} workers, "
        f"epoch {job.epoch}, path {PATHS[job.path]}, {job.slots} slots from {job.first_slot} on, "
        f"exchange {done}; looked at for {view.seconds:.1f} s"
    )
