"""One of four processes, the first of which only serves: ``python training_node_worker.py FOLDER``."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from training_problem import RATE, STEPS, fresh_model, loss_of, weights

from innet.errors import UsageError
from innet.training import make
from innet.training.message_codecs import message_codec
from innet.training.transports.process_group import ServerNodeTransport

CASES = (
    ("ps-sync", {"packing": "layers"}),
    ("softsync-sgd", {"n": 3}),
    ("easgd", {"rho": 0.5}),
    ("sync-easgd-1", {"rho": 0.5}),
    ("ps-sync", {"codec": "T"}),
    ("ps-sync", {"codec": "Q"}),
    ("async-easgd", {"rho": 0.5}),
    ("async-easgd", {"rho": 0.5, "one_at_a_time": True}),
)


def main(folder: Path) -> None:
    """Train them all, and save the weights."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for index, (name, given) in enumerate(CASES):
        options: dict[str, Any] = dict(given)
        transport = ServerNodeTransport(codec=message_codec(options.pop("codec", "plain")))
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with transport, make(name, model, optimizer, transport, **options) as algorithm:
            for step in range(0 if transport.serves else STEPS):
                algorithm.begin()
                optimizer.zero_grad()
                loss_of(model, transport.rank, step).backward()
                algorithm.step()
        if not transport.serves:
            torch.save(weights(model), folder / f"{index}-{transport.rank}.pt")
    try:
        ServerNodeTransport().all_reduce(torch.zeros(1))
    except UsageError:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
