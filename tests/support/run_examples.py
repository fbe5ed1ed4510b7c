"""A run of several examples in one process group, with their output, for tests/system/test_examples.py.

``torchrun run_examples.py BACKEND STEPS FILE NAME...``; every rank writes FILE.RANK.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from paths import ROOT

sys.path.append(str(ROOT / "examples"))

import common

import innet.torch


def main(backend: str, steps: str, file: str, *names: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank = dist.get_rank()
    said: dict[str, Any] = {"innet": innet.__file__}
    for name in names:
        before = innet.torch.carried()
        losses = importlib.import_module(name).train(int(steps))
        after = innet.torch.carried()
        ways = {"/".join(way): number - before.get(way, 0) for way, number in after.items()}
        said[name] = {"losses": losses, "ways": ways}
    _, labels = common.digits()
    said["labels"] = common.total(torch.bincount(labels[rank::3], minlength=10) << 40)
    Path(f"{file}.{rank}").write_text(json.dumps(said))
    dist.destroy_process_group()
    if backend == "gloo":
        # Gloo's threads outlive the group as long as a DDP module holds it. A thread that still
        # drops a tensor when the interpreter ends aborts the process. The end of Gloo is not under
        # test here.
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
