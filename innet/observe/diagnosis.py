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
from innet.observe.ports import ObservedPort
from innet.observe.rules import matching
from innet.observe.sample import Observation
from innet.observe.subjects import ObservedJob, ObservedWorker
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES


def diagnose(observation: Observation) -> list[Finding]:
    """Return all findings, the most urgent first."""
    job = ObservedJob(observation)
    found = list(matching(JOB_RULES, job))
    for worker in job.workers:
        found += _cause(worker)
    for each in job.switches:
        found += islice(matching(TREE_RULES, each), 1)
    for switch, port in observation.now.ports:
        found += matching(PORT_RULES, ObservedPort(observation, switch, port))
    if job.stalls and not any(each.severity == Severity.PROBLEM for each in found):
        found.append(UNEXPLAINED.finding(job))
    return sorted(found, key=lambda finding: finding.severity)


def held_up(observation: Observation) -> list[str]:
    """Return, for every switch of a job's tree, what holds sums up there, or "" if nothing does."""
    statements = {
        switch.name: finding.statement
        for switch in ObservedJob(observation).switches
        for finding in islice(matching(TREE_RULES, switch), 1)
    }
    return [statements.get(each.switch, "") for each in observation.now.job.tree]


def _cause(worker: ObservedWorker) -> Iterator[Finding]:
    """Yield the cause of a worker's trouble, as a problem if it keeps others from continuing."""
    for finding in matching(WORKER_RULES, worker):
        if worker.blocks:
            finding = dataclasses.replace(  # noqa: PLW2901 - the same one, in its context
                finding,
                severity=Severity.PROBLEM,
                evidence=finding.evidence + worker.waiting_evidence,
            )
        yield finding
        return
