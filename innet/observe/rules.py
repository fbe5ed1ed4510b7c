"""The rows of a table of rules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from innet.observe.findings import Finding, Severity


class Subject(Protocol):
    """Something that rules can be about."""

    @property
    def subject(self) -> str:
        """Return its name for findings."""


Case = TypeVar("Case", bound=Subject)


def _nothing(_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Rule(Generic[Case]):
    """A row: `when` tells whether it fits a case, `what` is the statement, `evidence` the reasons."""

    name: str
    severity: Severity
    when: Callable[[Case], object]
    what: str | Callable[[Case], str]
    remedy: str = ""
    evidence: Callable[[Case], Iterable[str]] = _nothing

    def finding(self, case: Case) -> Finding:
        """Return the rule's finding about a case that it fits."""
        what = self.what if isinstance(self.what, str) else self.what(case)
        evidence = tuple(self.evidence(case))
        return Finding(self.severity, self.name, case.subject, what, evidence, self.remedy)


def fitting(table: Sequence[Rule[Case]], case: Case) -> Iterator[Finding]:
    """Return the findings of all rows that fit, in the table's order."""
    return (rule.finding(case) for rule in table if rule.when(case))
