"""The client of a call, as a value that outlives the call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Caller:
    """The client of one call: the address that it calls from, and the certificate that it shows.

    `peer` is written as in gRPC, for example ``ipv4:10.0.0.1:4000``. `shown` is what gRPC's
    ``auth_context()`` had; it is empty without TLS. Threads may use a caller after its call has ended.
    They must not ask gRPC's context, which may have freed the call: this would end the process.
    """

    peer: str
    shown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Any) -> "Caller":
        """Return the client of a call that is known to go on, from its gRPC context."""
        return cls(context.peer(), context.auth_context())

    @property
    def host(self) -> str:
        """Return the address without the port."""
        return self.peer.rpartition(":")[0]
