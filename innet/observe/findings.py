"""What a diagnosis consists of."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much a finding matters; the most urgent first."""

    PROBLEM = 0
    """It does not go on."""
    WARNING = 1
    """It goes on, but not as it should."""
    NOTE = 2
    """Worth knowing."""
    GOOD = 3
    """As it should be."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found: who it is about, what it is, why that is believed, what to do."""

    severity: Severity
    rule: str
    subject: str
    what: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing has to be done."""
        return self.severity >= Severity.NOTE
