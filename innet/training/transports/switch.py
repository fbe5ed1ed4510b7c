"""A transport over the innet agent, with sums in the switch."""

from collections.abc import Sequence
from concurrent.futures import Future

from torch import Tensor

from innet.errors import UsageError
from innet.host.agent import Agent
from innet.training.transports.base import Transport


class AgentTransport(Transport):
    """A network over an agent's membership in a job. Closing it leaves the agent open.

    `quantizer` selects the format of the vectors (docs/quantization.md). The default is the
    agent's. With error feedback the vectors of a step must have different sizes, as the one of
    ``packing="packed"`` has.
    """

    def __init__(self, agent: Agent, quantizer: str | None = None) -> None:
        self.agent, self._quantizer = agent, quantizer
        self.rank, self.workers = agent.info.rank, agent.info.workers

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean, as exact as :mod:`innet.host.quantizers.fixed_point` says."""
        return self.agent.submit(vector, quantizer=self._quantizer, key=vector.numel())

    def check_sizes(self, sizes: Sequence[int]) -> None:
        """Raise UsageError if vectors of one size would share their errors."""
        spec = self.agent._reducer.choose(self._quantizer, 0)  # noqa: SLF001 - checks the name, too
        if spec.feedback and len(set(sizes)) < len(sizes):
            raise UsageError(
                f"quantizer {spec} uses error feedback, which tells vectors apart by their sizes, and "
                "some have the same size: use packing='packed', or a quantizer without error feedback"
            )

    def broadcast(self, vector: Tensor) -> Tensor:
        """Return worker 0's vector. Raises WorkersMissing if the job's quorum went on without it."""
        return self.agent.broadcast(vector)

    def close(self, *, abandon: bool = False) -> None:
        """Do nothing: the owner of the agent closes it."""
        del abandon
