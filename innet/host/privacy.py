"""The secret of a job with private sums, and its use before the first call: docs/private-sums.md."""

from innet.host.exchanges import Exchanges
from innet.host.job import WorkerInfo


class Privacy:
    """The secret of a job with private sums, or None for a job without.

    :mod:`innet.host.private_sums` needs `cryptography`, so it is loaded for private jobs only.
    """

    def __init__(self, secret: bytes | None, info: WorkerInfo) -> None:
        self._secret, self._info = secret, info

    def __bool__(self) -> bool:
        return self._secret is not None

    def check(self, *, sealed: bool) -> None:
        """Raise UsageError if the job's sums should be private but cannot be."""
        if self:
            from innet.host.private_sums import check_suits

            check_suits(self._info, sealed=sealed)

    def begin_session(self, exchanges: Exchanges) -> None:
        """Agree on pads before the first call of a private job."""
        if self._secret is None or exchanges.private or exchanges.failure:
            return
        from innet.host.private_sums import begin_session

        try:
            begin_session(exchanges, self._info, self._secret)
        except BaseException as problem:
            exchanges.give_up(problem)  # no later call may go without pads
            raise
