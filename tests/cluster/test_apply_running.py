"""A cluster file is applied, changed, drained and applied again under a running job."""

import contextlib
from pathlib import Path
from typing import Any

import yaml
from cluster import Worker
from commands import run, serving
from forked import ranks
from trees import Plan, TreeSwitch
from waiting import until

from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

SCRIPT = Path(__file__).parents[1] / "support/summing_worker.py"
RACKS = ("left", "right")
MORE = 5
"""Sums that have to be done after each change."""


class Operator:
    """Someone with a cluster file and a shell."""

    def __init__(self, controller: str, stub: Any, folder: Path) -> None:
        self._controller, self._stub = controller, stub
        self.token, self._file = folder / "train.token", folder / "cluster.yaml"

    def apply(self, switches: dict[str, dict]) -> list[str]:
        """Apply a file with these switches and a job of one worker in each rack."""
        job = {"switch": "spine", "workers": 2, "slots": 32, "token_file": str(self.token)}
        self._file.write_text(yaml.safe_dump({"switches": switches, "jobs": {"train": job}}))
        done = run("innet", "apply", str(self._file), "--controller", self._controller)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def switch(self, name: str) -> pb.Switch:
        """Return what the controller says of a switch."""
        shown: pb.Switch = self._stub.GetSwitch(pb.GetSwitchRequest(name=name))
        return shown


def wait_for_more(workers: list[Worker], path: str) -> None:
    """Wait until all workers sum on this path, and have made more sums."""
    for each in workers:
        each.wait_for_path(path)
        each.wait_for_step(each.done + MORE)


def test_no_sum_is_lost_or_wrong_while_the_cluster_changes_with_its_file(tmp_path: Path):
    # Two cables lead from the left rack to the spine. First one is used, and then the other.
    parents = {"left": ("spine", "spine"), "right": ("spine",)}
    plan = Plan.of({"spine": 0, "left": 2, "right": 1}, parents)
    with contextlib.ExitStack() as stack:
        _, controller = stack.enter_context(serving("--state", str(tmp_path / "state")))
        running = {name: TreeSwitch(cables) for name, cables in plan.cables.items()}
        for each in running.values():
            stack.callback(each.stop)
        switches = {
            name: {
                "address": running[name].address, "lanes": 64, "ports": [*range(1, len(cables) + 1)],
                "uplinks": [f"{up.parent}:{up.port}:{up.parent_port}" for up in plan.uplinks[name]][:1],
            }
            for name, cables in plan.cables.items()
        }  # fmt: skip
        switches["left"]["ports"] = [1, 3, 4]
        channel, stub = connect(controller)
        stack.callback(channel.close)
        operator = Operator(controller, stub, tmp_path)
        assert len(operator.apply(switches)) == 4

        environment = {
            "INNET_CONTROLLER": controller, "INNET_JOB": "train", "INNET_TLS": "",
            "INNET_TOKEN": operator.token.read_text().strip(),
            "INNET_LINK": " ".join(plan.links[name][0] for name in RACKS),
        }  # fmt: skip
        stop = tmp_path / "stop"
        scripts = stack.enter_context(ranks(SCRIPT, [str(stop)], 2, environment))
        workers = [Worker(rank, script) for rank, script in enumerate(scripts)]
        for each in workers:
            stack.callback(each.kill)
            each.wait_for_step(MORE)
        wait_for_more(workers, "SWITCH")

        switches["left"]["ports"] = [1, 2, 3, 4]
        assert operator.apply(switches) == ["~ switch left: ports 1,3,4 become 1,2,3,4"]
        wait_for_more(workers, "SWITCH")

        switches["spine"]["drained"] = True
        assert operator.apply(switches) == ["~ switch spine: drained"]
        wait_for_more(workers, "FALLBACK")
        running["spine"].kill()
        until(lambda: not operator.switch("spine").reachable)
        running["spine"].start()
        until(lambda: operator.switch("spine").reachable)
        assert operator.switch("spine").drained
        switches["left"]["uplinks"] = ["spine:4:2"]
        assert operator.apply(switches) == ["~ switch left: uplinks spine:3:1 become spine:4:2"]
        assert operator.apply(switches) == ["all is as the file says"]
        wait_for_more(workers, "FALLBACK")

        switches["spine"]["drained"] = False
        assert operator.apply(switches) == ["~ switch spine: in use again"]
        wait_for_more(workers, "SWITCH")
        assert operator.apply(switches) == ["all is as the file says"]

        stop.touch()
        ends = {each.wait_for_end() for each in workers}
        assert ends == {str(workers[0].done)}
        for each in workers:
            assert [said["step"] for said in each.steps] == [*range(each.done)]
