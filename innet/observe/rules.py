"""The rows of a table of rules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from innet.observe.findings import Finding, Severity


class Subject(Protocol):
    """Something that rules can be about."""

    @property
    def label(self) -> str:
        """Return its name for findings."""


Observed = TypeVar("Observed", bound=Subject)
"""A job, worker, switch or port, as the samples show it."""


def _nothing(_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Rule(Generic[Observed]):
    """A row: `condition` tells whether it fits a subject, and `evidence` gives the reasons."""

    name: str
    severity: Severity
    condition: Callable[[Observed], object]
    statement: str | Callable[[Observed], str]
    remedy: str = ""
    evidence: Callable[[Observed], Iterable[str]] = _nothing

    def finding(self, subject: Observed) -> Finding:
        """Return the rule's finding about a subject that it fits."""
        statement = self.statement
        text = statement if isinstance(statement, str) else statement(subject)
        evidence = tuple(self.evidence(subject))
        return Finding(self.severity, self.name, subject.label, text, evidence, self.remedy)


def matching(table: Sequence[Rule[Observed]], subject: Observed) -> Iterator[Finding]:
    """Return the findings of all rows that fit, in the table's order."""
    return (rule.finding(subject) for rule in table if rule.condition(subject))
