"""D-Sync: decentralized synchronous SGD (Li et al., 2018, figure 1b; synchronous SGD of Arnold, 2016)."""

from torch import nn
from torch.optim import Optimizer

from innet.training.packing import Packing
from innet.training.pipe_sgd import PipeSGD
from innet.training.transports.base import Transport


class DSync(PipeSGD):
    """W ← W - η mean(ΔW), with the gradients of the same iteration: Pipe-SGD with K = 1."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        packing: Packing = "packed",
        overlap: bool = False,
    ) -> None:
        super().__init__(model, optimizer, transport, K=1, packing=packing, overlap=overlap)
