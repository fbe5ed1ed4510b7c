"""The term in which a worker is: how it begins, and the reasons to end it early."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from innet.errors import AllReduceError, LeftBehind
from innet.host.job import ControllerMessages, Term
from innet.host.wait_limits import WaitLimits

if TYPE_CHECKING:
    from innet.rpc import innet_pb2 as pb


class TermOver(Exception):
    """The exchange under way has to be broken off."""


class CurrentTerm:
    """A worker's present term, and the transport's view of the job (:class:`stall.MembershipView`).

    `term` is None before the first. A term is spoilt if nothing more can be summed in it. If TermOver
    breaks off an exchange in a block ``with current_term``, the block ends and the term is spoilt.
    """

    def __init__(self, controller: ControllerMessages, limits: WaitLimits) -> None:
        self._controller, self._limits = controller, limits
        self.term: Term | None = None
        self._answered: pb.Recover | None = None
        self._spoilt = ""  # why the term is spoilt
        self._asked = False  # whether another term was requested because of that

    def latest(self, exchange: int) -> Term | None:
        """Return the controller's latest term, or None if there is none or the next is under way.

        If the controller begins a new term, answer it. `exchange` is the unfinished one.
        """
        if (recover := self._controller.recover) is not None:
            if recover is not self._answered:
                self._answered = recover
                self._controller.ready(recover.term, exchange)
            return None
        return self._controller.term

    @property
    def goes_on(self) -> bool:
        """Return whether nothing is to be done before the next exchange of the term."""
        said = self._controller
        return said.recover is None and said.term is self.term is not None and not self._spoilt

    def enter(self, term: Term, exchange: int) -> None:
        """Begin a new term with this unfinished exchange.

        Raises LeftBehind if the job has finished more exchanges, and AllReduceError if it goes back
        further than to this worker's last one.
        """
        self.term, self._spoilt, self._asked = term, "", False
        if exchange < term.exchange:
            raise LeftBehind(
                f"the job goes on with exchange {term.exchange}, this worker has not finished "
                f"{exchange}: join the job again when the others have left"
            )
        if exchange > term.exchange + term.shared:
            raise AllReduceError(
                f"the job goes back to exchange {term.exchange}, this worker has finished "
                f"{exchange - 1}: join the job again"
            )

    def spoil(self, reason: str) -> None:
        """Mark the term as spoilt."""
        self._spoilt = reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: object) -> bool:
        if over := kind is TermOver:
            self.spoil("an exchange was broken off")
        return over

    def replace_if_spoilt(self) -> bool:
        """Return whether the term is spoilt. If it is, ask for another one, but only once."""
        if self._spoilt and not self._asked:
            self._asked = True
            self.trouble(self._spoilt)
        return bool(self._spoilt)

    @property
    def end(self) -> str:
        """Return why the last term has ended."""
        return self._answered.reason if self._answered else self._spoilt

    def check(self) -> None:
        """Raise TermOver if the term has ended, AgentClosed or JobEnded."""
        self._limits.check_membership()
        if self._controller.recover is not None or self._controller.term is not self.term:
            raise TermOver

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""
        return self._controller.departed()

    def trouble(self, reason: str) -> None:
        """Ask for another term."""
        if self.term:
            self._controller.trouble(self.term.number, reason)

    def in_touch(self) -> bool:
        """Return whether the controller can be reached."""
        return self._controller.connected

    def waits(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long the exchange has waited, and for which ranks as far as known."""
        self._limits.note(seconds, ranks)
