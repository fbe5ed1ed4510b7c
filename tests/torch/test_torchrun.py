"""torchrun: two nodes, a restart, and `innet rack`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import BIN, refuse, run
from forked_rack import forked_rack
from paths import SUPPORT
from preforked import forked_programs
from waiting import marked, until

from innet.local.ports import free_tcp_port
from innet.local.processes import spawned
from innet.local.rack import Rack
from innet.wire.layout import MOST_CONTRIBUTORS

WITHIN = 400.0


WORKER = str(SUPPORT / "elastic_worker.py")


def torchrun() -> list[str]:
    """Return the launcher, which starts soon, as the workers do that it starts."""
    return [str(forked_programs() / "torchrun")]


def trained(rack: Rack, commands: list[list[str]], links: list[str]) -> list[list[str]]:
    """Return the output of some nodes' workers, in the order of their ranks, split into words."""
    said = []
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                spawned(command, {**rack.environment, "INNET_LINK": link, "OMP_NUM_THREADS": "1"})
            )
            for command, link in zip(commands, links, strict=True)
        ]
        for node in nodes:
            output, errors = node.communicate(timeout=WITHIN)
            assert node.returncode == 0, errors
            said += [line.split() for line in output.splitlines()]
    return sorted(said)


def test_a_worker_that_dies_is_started_again_and_all_go_on_in_a_new_term(tmp_path: Path):
    with forked_rack(2) as rack:
        before = rack.describe_job().term
        command = [
            *torchrun(), "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
            WORKER, str(tmp_path), "3",
        ]  # fmt: skip
        first, second = trained(rack, [command], [",".join(rack.links)])
    assert first[:7] == ["rank", "0", "restarts", "1", "from", "3", "term"]
    assert second[:7] == ["rank", "1", "restarts", "1", "from", "3", "term"]
    assert first[7:] == second[7:]
    assert int(first[7]) > before


def test_two_nodes_train_together(tmp_path: Path):
    with forked_rack(2) as rack:
        command = [
            *torchrun(), "--nnodes", "2", "--nproc-per-node", "1", "--local-addr", "127.0.0.1",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_tcp_port()}",
            "--rdzv-id", "test", WORKER, str(tmp_path),
        ]  # fmt: skip
        first, second = trained(rack, [command, command], list(rack.links))
        assert rack.describe_job().counters.completed > 0
    assert first[:6] == ["rank", "0", "restarts", "0", "from", "0"]
    assert second[:6] == ["rank", "1", "restarts", "0", "from", "0"]
    assert first[6:] == second[6:]


FAILS = """
import innet.torch, torch, torch.distributed as dist
dist.init_process_group("innet")
dist.all_reduce(torch.ones(100))
if dist.get_rank() == 1:
    raise ValueError("no more data")
dist.all_reduce(torch.ones(100))
"""


def test_the_exception_that_ends_a_rank_is_named_to_the_others():
    with forked_rack(2) as rack, contextlib.ExitStack() as stack:
        group = {
            **rack.environment, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_tcp_port()), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        ranks = [
            stack.enter_context(
                spawned(
                    [str(forked_programs() / "python"), "-c", FAILS],
                    {**group, "RANK": str(rank), "INNET_LINK": rack.links[rank]},
                )
            )
            for rank in range(2)
        ]
        errors = [process.communicate(timeout=WITHIN)[1] for process in ranks]
    assert "worker 1: its program has failed: ValueError: no more data" in errors[0]


@contextlib.contextmanager
def in_a_rack(*command: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Yield `innet rack` with a command, and the mark of all its processes."""
    mark = f"INNET_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    with subprocess.Popen(
        [str(BIN / "innet"), "rack", "--workers", "2", "--cables", "2", "--", *command],
        env={**os.environ, name: value}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process, mark
        finally:
            process.kill()


SHOW = """
import os, sys
print(*(os.environ[name] for name in ("INNET_CONTROLLER", "INNET_JOB", "INNET_TOKEN", "INNET_LINK")))
sys.exit(7)
"""


def test_a_command_in_a_rack_gets_its_environment_and_gives_its_exit_code():
    with in_a_rack(sys.executable, "-c", SHOW) as (process, mark):
        said, errors = process.communicate(timeout=WITHIN)
        assert process.returncode == 7, errors
        assert marked(mark) == []
    controller, job, token, first, second = said.split()
    assert controller.startswith("127.0.0.1:")
    assert (job, len(token) > 10) == ("demo", True)
    assert [len(links.split("+")) for links in (first, second)] == [2, 2]


def test_a_command_that_is_not_there_is_an_error():
    with in_a_rack("no-such-command") as (process, mark):
        _, errors = process.communicate(timeout=WITHIN)
        assert process.returncode == 2
        assert "cannot run no-such-command: No such file" in errors
        assert marked(mark) == []


def test_a_rack_has_as_many_workers_as_one_switch_can_serve():
    said = run("innet", "rack", "--workers", "65", "--", "true")
    assert said.returncode == 2
    assert f"less than or equal to {MOST_CONTRIBUTORS}" in said.stderr


def test_a_rack_with_more_cables_than_a_switch_has_ports_is_refused():
    refuse(
        "2 workers with 255 cables each need 510 ports, and a switch has 509",
        "innet", "rack", "--workers", "2", "--cables", "255", "--", "true",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_rack_that_is_stopped_leaves_no_process_behind(number: int, code: int):
    sleeping = "import time; print('here', flush=True); time.sleep(600)"
    with in_a_rack(sys.executable, "-c", sleeping) as (process, mark):
        assert process.stdout.readline() == "here\n"
        process.send_signal(number)
        began = time.monotonic()
        process.communicate(timeout=WITHIN)
        assert process.returncode == code
        until(lambda: marked(mark) == [])
        assert time.monotonic() - began < 30
