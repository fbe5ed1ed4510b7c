"""The error after which a worker has to join its job again."""

import contextlib
from collections.abc import Iterator

from innet.errors import AllReduceError, LinkFailed


class FirstError:
    """The error of a worker's first failed exchange, which every later exchange raises again.

    `error` is None while there is none.
    """

    def __init__(self) -> None:
        self.error: AllReduceError | None = None

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error:
            raise self.error

    def note(self, problem: BaseException) -> None:
        """Note what has ended the exchanges between two of them."""
        if self.error:
            return
        if isinstance(problem, AllReduceError):
            self.error = problem
        else:
            self.error = AllReduceError(
                f"an all-reduce was broken off ({problem!r}): join the job again"
            )

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note the error that ends the block. An OSError is raised as LinkFailed."""
        try:
            yield
        except AllReduceError as failure:
            self.error = failure
            raise
        except OSError as problem:
            self.error = LinkFailed(
                f"the link to the switch failed ({problem}): join the job again"
            )
            raise self.error from problem
        except BaseException:
            self.error = AllReduceError("an all-reduce was broken off: join the job again")
            raise
