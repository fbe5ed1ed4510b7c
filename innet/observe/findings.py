"""The findings of a diagnosis."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """The urgency of a finding, the most urgent first."""

    PROBLEM = 0
    """The job does not continue."""
    WARNING = 1
    """The job continues, but not as it should."""
    NOTE = 2
    """Worth knowing."""
    GOOD = 3
    """As it should be."""


@dataclass(frozen=True)
class Finding:
    """One finding: its subject, a statement, the evidence for it, and a remedy."""

    severity: Severity
    rule: str
    subject: str
    statement: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def healthy(self) -> bool:
        """Return whether nothing has to be done."""
        return self.severity >= Severity.NOTE


def good(name: str, statement: str) -> Finding:
    """Return a finding about a machine: a check has succeeded."""
    return Finding(Severity.GOOD, name, name, statement)


def note(name: str, statement: str) -> Finding:
    """Return a finding about a machine that is worth knowing."""
    return Finding(Severity.NOTE, name, name, statement)


def warning(name: str, statement: str, remedy: str) -> Finding:
    """Return a finding about a machine that works, but not as it should."""
    return Finding(Severity.WARNING, name, name, statement, remedy=remedy)


def problem(name: str, statement: str, remedy: str) -> Finding:
    """Return a finding about a machine that cannot be used."""
    return Finding(Severity.PROBLEM, name, name, statement, remedy=remedy)
