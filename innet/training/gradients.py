"""The exchange of gradients: all after the backward pass, or each segment during it.

These are the *sequential* and *pipelined gradient communication* of Li et al., 2018, figure 2b,
equations (5) and (6).
"""

from concurrent.futures import Future

from torch import Tensor, nn

from innet.errors import UsageError
from innet.training.packing import Segment
from innet.training.transports.base import Transport


class GradientExchange:
    """Means of gradients over the workers, segment by segment, in the order of the backward pass.

    With `overlap` a segment is sent as soon as its gradients are there, while the backward pass
    goes on. Then there may be only one backward pass for each :meth:`start`.
    """

    def __init__(self, segments: list[Segment], transport: Transport, *, overlap: bool) -> None:
        self._segments, self._transport = segments, transport
        self._begun: list[Future[Tensor]] = []
        self._missing = [len(segment.parameters) for segment in segments]
        self._hooks = []
        if overlap:
            for index, segment in enumerate(segments):
                for parameter in segment.parameters:
                    hook = self._hook(index)
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def start(self) -> list[Future[Tensor]]:
        """Return the futures of the means, one for each segment. Call it after a backward pass."""
        while len(self._begun) < len(self._segments):
            self._submit()
        begun, self._begun = self._begun, []
        self._missing = [len(segment.parameters) for segment in self._segments]
        return begun

    def close(self) -> None:
        """Remove the hooks from the backward pass."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, index: int):  # type: ignore[no-untyped-def] # noqa: ANN202 - torch's hook type
        def ready(_: nn.Parameter) -> None:
            if index < len(self._begun):
                raise UsageError(
                    "a second backward pass before step(): with overlap=True there may be only one"
                )
            self._missing[index] -= 1
            # All workers must submit in the same order, whatever the order of their backward
            # passes.
            while len(self._begun) < len(self._segments) and not self._missing[len(self._begun)]:
                self._submit()

        return ready

    def _submit(self) -> None:
        segment = self._segments[len(self._begun)]
        self._begun.append(self._transport.all_reduce(segment.gradients()))
