"""A plugin of pytest that runs other projects' tests over innet in place of Gloo, and its command.

``innet rack --workers 4 -- python pytorch_suites.py FILE`` makes every group of Gloo that PyTorch's or
torchft's tests ask for a group of innet: by name, by default on CPUs, and by the class
``ProcessGroupGloo``. With ``SUITE_OVER=gloo`` they keep Gloo, for comparison. ``SUITE_OUTCOMES`` names
a file that gets a line of JSON for each test: its name, what became of it, and why.

The tests' processes are forked, since each would take seconds to import PyTorch.
"""

import functools
import gc
import importlib
import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

_DEFAULTS = {
    "BACKEND": "gloo",
    "WORLD_SIZE": "3",
    "INNET_SLOTS": "16",
    "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "100",
}
os.environ.update({name: os.environ.get(name, value) for name, value in _DEFAULTS.items()})
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())

import pytest  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.distributed import distributed_c10d  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

_MOST_TEXT = 20000


def pytest_configure(config: Any) -> None:
    torch.set_num_threads(1)
    _fork()
    if os.environ.get("SUITE_OVER", "innet") == "innet":
        for variable in ("INNET_JOB", "INNET_TOKEN"):
            os.environ.pop(variable, None)  # every group gets a job of its own
        if any("torchft" in argument for argument in config.args):
            _replace_torchfts_gloo()
        else:
            _replace_gloo()


def pytest_collection_finish() -> None:
    gc.freeze()  # a search for garbage in a forked process would copy all that is shared


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    name = report.nodeid.split("::", 1)[-1].replace("::", ".")
    what = {"skipped": "skipped", "passed": "passed"}.get(report.outcome, "failed")
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    _say(name, what, why, report.duration)


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _say("collection", "failed", report.longreprtext)


def _say(name: str, what: str, why: str, seconds: float = 0) -> None:
    line = {"name": name, "what": what, "why": why[-_MOST_TEXT:], "seconds": round(seconds, 1)}
    with Path(os.environ["SUITE_OUTCOMES"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def _fork() -> None:
    """Let PyTorch's test cases fork their processes from this one, which has no other threads."""
    processes = torch.multiprocessing.get_context("fork").Process
    case = common_distributed.MultiProcessTestCase
    case._spawn_processes = lambda self: self._start_processes(processes)
    if continuous := getattr(common_distributed, "MultiProcContinuousTest", None):
        spawn = continuous._spawn_processes.__func__

        def spawn_forked(cls: Any, *arguments: Any) -> None:
            torch.multiprocessing.set_start_method("fork", force=True)
            spawn(cls, *arguments)

        continuous._spawn_processes = classmethod(spawn_forked)
    functions = torch.multiprocessing.spawn.__globals__
    start = functions["start_processes"]

    def start_forked(*arguments: Any, start_method: str = "", **more: Any) -> Any:
        return start(*arguments, start_method="fork", **more)

    functions["start_processes"] = start_forked


def _replace_gloo() -> None:
    importlib.import_module("innet.torch.group")  # which uses the class that is replaced here
    backend = importlib.import_module("innet.torch.extension").loaded().Backend
    backend.create_device = staticmethod(dist.ProcessGroupGloo.create_device)  # which tests print
    form = distributed_c10d._new_process_group_helper

    @functools.wraps(form)
    def form_innets(
        size: int, rank: int, ranks: Any, backend: Any, *more: Any, **named: Any
    ) -> Any:
        return form(size, rank, ranks, _in_place_of(backend), *more, **named)

    distributed_c10d._new_process_group_helper = form_innets
    dist.ProcessGroupGloo = _constructor(dist.ProcessGroupGloo)


def _in_place_of(backend: Any) -> Any:
    """Return innet wherever a choice of backends names Gloo, or leaves it to the device."""
    name = str(backend)
    if name == dist.Backend.UNDEFINED:
        return dist.Backend("innet")
    of_devices = [each.split(":") for each in name.split(",")]
    renamed = [[*device, "innet" if last == "gloo" else last] for *device, last in of_devices]
    return dist.Backend(",".join(":".join(each) for each in renamed))


def _constructor(gloo: Any) -> Any:
    class GroupOfInnet:
        """A constructor of groups of innet, with the arguments of Gloo's."""

        Options, _Options = gloo.Options, gloo._Options
        create_device, create_default_device = gloo.create_device, gloo.create_default_device

        def __new__(cls, store: Any, rank: int, size: int, given: Any = None, **named: Any) -> Any:
            given = named.get("timeout", named.get("options", given))
            options = distributed_c10d._DistributedBackendOptions()
            options.store, options.group_rank, options.group_size = store, rank, size
            options.timeout = getattr(given, "_timeout", given) or timedelta(minutes=30)
            return dist.Backend._plugins["INNET"].creator_fn(options, None)

    return GroupOfInnet


def _replace_torchfts_gloo() -> None:
    ours = importlib.import_module("innet.torch.torchft")
    theirs = importlib.import_module("torchft.process_group")
    theirs.ProcessGroupGloo = ours.ProcessGroupInnet


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if os.environ.get("SUITE_OVER", "innet") == "innet":
        carried = {
            "/".join(way): count
            for way, count in importlib.import_module("innet.torch").carried().items()
        }
        terminalreporter.write_line(f"collectives of this process: {carried}")


def main(*arguments: str) -> int:
    options = ["-c", os.devnull, "--rootdir=/", "--noconftest", "-p", "no:cacheprovider", "-q"]
    return pytest.main([*options, *arguments], plugins=[sys.modules[__name__]])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
