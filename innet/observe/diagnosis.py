"""The diagnosis of a job: tables of rules over samples of the controller. No I/O, no clock.

For each worker, only the first rule that fits counts. It is the cause, and further rules that fit
would describe its consequences. The same holds for each switch below another. All fitting rules
about the job and about ports count.
"""

import dataclasses
from collections.abc import Iterator
from itertools import islice

from innet.observe.findings import Finding, Severity
from innet.observe.job_rules import JOB_RULES, UNEXPLAINED
from innet.observe.port_rules import PORT_RULES
from innet.observe.ports import PortCase
from innet.observe.rules import fitting
from innet.observe.sample import View
from innet.observe.subjects import JobCase, WorkerCase
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES


def diagnose(view: View) -> list[Finding]:
    """Return all findings, the most urgent first."""
    job = JobCase(view)
    found = list(fitting(JOB_RULES, job))
    for worker in job.workers:
        found += _cause(worker)
    for each in job.switches:
        found += islice(fitting(TREE_RULES, each), 1)
    for switch, port in view.now.ports:
        found += fitting(PORT_RULES, PortCase(view, switch, port))
    if job.stalls and not any(each.severity == Severity.PROBLEM for each in found):
        found.append(UNEXPLAINED.finding(job))
    return sorted(found, key=lambda finding: finding.severity)


def held_up(view: View) -> list[str]:
    """Return, for every switch of a job's tree, what holds sums up there, or "" if nothing does."""
    found = {each.name: fitting(TREE_RULES, each) for each in JobCase(view).switches}
    first = {name: next(findings, None) for name, findings in found.items()}
    return [
        finding.what if (finding := first.get(each.switch)) else "" for each in view.now.job.tree
    ]


def _cause(worker: WorkerCase) -> Iterator[Finding]:
    """Yield the cause of a worker's trouble, as a problem if it keeps others from continuing."""
    for finding in fitting(WORKER_RULES, worker):
        if worker.blocks:
            finding = dataclasses.replace(  # noqa: PLW2901 - the same one, in its context
                finding, severity=Severity.PROBLEM, evidence=finding.evidence + worker.waiting
            )
        yield finding
        return
