"""The presence of workers, found by looking at their connections, and the log of outages."""

from collections.abc import Iterable, Mapping

import structlog

from innet.controller.state.liveness import Liveness, Sign
from innet.controller.state.streams import Stream

_log = structlog.get_logger("innet.controller")


class Presence:
    """The presence of all workers of all jobs, by nonce.

    `streams` holds the open streams, and may change meanwhile.
    """

    def __init__(self, lease: float, streams: Mapping[int, Stream]) -> None:
        self._lease, self._streams = lease, streams
        self._liveness = Liveness(lease)
        self.disconnected, self.unheard = self._liveness.disconnected, self._liveness.unheard
        self.excuse = self._liveness.excuse

    @property
    def outage(self) -> bool:
        """Return whether no worker is heard at all.

        The controller's own network is then the suspect.
        """
        return self._liveness.outage

    def given_up(self, nonces: Iterable[int], now: float) -> dict[int, str]:
        """Look at all workers. Return the nonces of those to be given up, and why."""
        before = self.outage
        gone = self._liveness.look(now, {nonce: self._sign(nonce) for nonce in nonces})
        if self.outage and not before:
            _log.warning(
                "no worker is heard any more: is the controller's own network down? Nobody is expelled",
                lease_s=self._lease,
            )
        elif before and not self.outage:
            _log.warning("workers are heard again", unheard=len(self.unheard()))
        return dict.fromkeys(gone, f"its machine was silent for {self._lease:g} s")

    def just_ended(self, stream: Stream, now: float) -> str:
        """Return what has ended a worker's stream, or "" if it may have been the network."""
        if not self._liveness.healthy(stream.nonce, now):
            return ""
        return f"its {'process' if stream.connection.broken else 'connection'} has ended"

    def silence(self, nonce: int) -> float | None:
        """Return the seconds since a worker's machine was heard, or None if it is not connected."""
        stream = self._streams.get(nonce)
        return stream.connection.silence() if stream else None

    def _sign(self, nonce: int) -> Sign:
        stream = self._streams.get(nonce)
        return Sign(self.silence(nonce), stream.connection.remote if stream else False)
