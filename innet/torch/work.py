"""The handle on a collective through the switch."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work

from innet.errors import TimedOut
from innet.host.coalesced import torch_future

if TYPE_CHECKING:
    from concurrent.futures import Future

_NO_TIMEOUT = timedelta(0)


class SwitchWork(Work):
    """A handle on a collective through the switch. Once it is done, its `tensors` hold the result."""

    def __init__(self, collective: "Future[None]", tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._collective = collective
        self._tensors = tensors

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait until the tensors hold the result.

        Without `timeout`, waits until the collective succeeds or fails. Raises TimedOut after
        `timeout`; the collective goes on. Otherwise raises the errors of
        :meth:`innet.Agent.all_reduce`.
        """
        seconds = timeout.total_seconds()
        try:
            self._collective.result(seconds if seconds > 0 else None)
        except TimeoutError:
            raise TimedOut(
                f"the collective is not done after {seconds:g} s: it goes on, and can be waited for "
                "again"
            ) from None
        return True

    def synchronize(self) -> None:
        """Wait, as :meth:`wait` does."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the collective is over, with or without success."""
        return self._collective.done()

    def is_success(self) -> bool:
        """Return whether the collective has succeeded."""
        return self._collective.done() and self._collective.exception() is None

    def exception(self) -> BaseException | None:
        """Return the collective's error, or None as long as it has none."""
        return self._collective.exception() if self._collective.done() else None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors, as soon as they hold the result."""
        self.wait()
        return self._tensors

    def get_future(self) -> Any:
        """Return a future of the list of tensors."""
        tensors = self._tensors
        device = tensors[0].device if tensors else torch.device("cpu")
        return torch_future(self._collective, device, lambda _: tensors)
