"""What is wrong with a job: tables of rules over what the controller says. No I/O, no clock.

Of the rules about a worker the first that fits counts: it is the cause, and what lies below it in the
table would be its consequences; so it is of those about a switch below another. Rules about the job and
about ports hold side by side.
"""

import dataclasses
from collections.abc import Iterator
from itertools import islice

from innet.observe.cases import JobCase, PortCase, WorkerCase
from innet.observe.findings import Finding, Severity
from innet.observe.job_rules import JOB_RULES, UNEXPLAINED
from innet.observe.port_rules import PORT_RULES
from innet.observe.rules import fitting
from innet.observe.sample import View
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES


def diagnose(view: View) -> list[Finding]:
    """All findings, the most urgent first."""
    job = JobCase(view)
    found = list(fitting(JOB_RULES, job))
    for worker in job.workers:
        found += _cause(worker)
    for switch in job.switches:
        found += islice(fitting(TREE_RULES, switch), 1)
    for port in view.now.ports:
        found += fitting(PORT_RULES, PortCase(view, port))
    if job.stalls and not any(each.severity == Severity.PROBLEM for each in found):
        found.append(UNEXPLAINED.finding(job))
    return sorted(found, key=lambda finding: finding.severity)


def held_up(view: View) -> list[str]:
    """For every switch of a job's tree, what holds sums up there; empty if nothing does."""
    found = {each.name: fitting(TREE_RULES, each) for each in JobCase(view).switches}
    first = {name: next(findings, None) for name, findings in found.items()}
    return [
        finding.what if (finding := first.get(each.switch)) else "" for each in view.now.job.tree
    ]


def _cause(worker: WorkerCase) -> Iterator[Finding]:
    """What is the matter with a worker; a problem if others cannot go on for it."""
    for finding in fitting(WORKER_RULES, worker):
        if worker.blocks:
            waiting = tuple(str(stall) for stall in worker.stalls)
            finding = dataclasses.replace(  # noqa: PLW2901 - the same one, in its context
                finding, severity=Severity.PROBLEM, evidence=finding.evidence + waiting
            )
        yield finding
        return
