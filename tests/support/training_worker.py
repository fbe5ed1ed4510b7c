"""One of three processes that train every case over Gloo: ``python training_worker.py FOLDER``."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from training_problem import RATE, STEPS, fresh_model, loss_of, weights

from innet.training import make
from innet.training.message_codecs import message_codec
from innet.training.transports.process_group import ProcessGroupTransport
from innet.training.transports.ring import Ring

CASES = (
    ("d-sync", {}),
    ("pipe-sgd", {"K": 3, "warmup": 2}),
    ("pipe-sgd", {"ring": "plain", "overlap": True, "packing": "layers"}),
    ("pipe-sgd", {"ring": "Q"}),
    ("ps-sync", {"packing": "layers"}),
    ("local-sgd", {}),
    ("easgd", {"rho": 0.5}),
    ("sync-easgd-1", {"rho": 0.5}),
    ("sync-easgd-3", {"rho": 0.5}),
    ("async-sgd", {}),
    ("hogwild-easgd", {}),
)


def main(folder: Path) -> None:
    """Train them all, and save the weights."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for index, (name, given) in enumerate(CASES):
        options = dict(given)
        transport = ProcessGroupTransport()
        if ring := options.pop("ring", None):
            transport = Ring(transport, message_codec(ring), parts=2)
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with transport, make(name, model, optimizer, transport, **options) as algorithm:
            for step in range(STEPS):
                algorithm.begin()
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                algorithm.step()
        torch.save(weights(model), folder / f"{index}-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
