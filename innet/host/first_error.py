"""The error after which a worker has to join its job again."""

from types import TracebackType
from typing import Self

from innet.errors import AllReduceError, LinkFailed


class FirstError:
    """The error of a worker's first failed exchange, which every later exchange raises again.

    `error` is None while there is none. A block ``with first_error`` notes the error that ends it, and
    raises an OSError as LinkFailed.
    """

    def __init__(self) -> None:
        self.error: AllReduceError | None = None

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error:
            raise self.error

    def note(self, problem: BaseException) -> None:
        """Note an error between two exchanges, after which no exchange can follow."""
        if self.error:
            return
        if isinstance(problem, AllReduceError):
            self.error = problem
        else:
            self.error = AllReduceError(
                f"an all-reduce was broken off ({problem!r}): join the job again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, problem: BaseException | None, __: TracebackType | None) -> None:
        if problem is None:
            return
        if isinstance(problem, AllReduceError):
            self.error = problem
        elif isinstance(problem, OSError):
            self.error = LinkFailed(
                f"the link to the switch failed ({problem}): join the job again"
            )
            raise self.error from problem
        else:
            self.error = AllReduceError("an all-reduce was broken off: join the job again")
