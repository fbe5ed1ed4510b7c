"""The deployments in docs/deploy.md and docs/recovery.md work, word for word.

Each machine of a page is a network namespace, with the addresses that the page gives it.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from machines import Machines, finished, kill, machines
from pages import ROOT, commands

from innet.rpc.certificates import make
from topologies import namespaces

RACK = commands("docs/deploy.md")
TREE = commands("docs/recovery.md")
STEPS = 20
CHUNKS = 39
"""The least number of packets of 256 numbers that the gradients of the example's network fill."""
RUNS = 5
"""The most runs of the training. If the switch stands still for a second, a run may take its fallback."""

_GIVE_A_ONE = """
import numpy, innet
with innet.join() as agent:
    print(agent.all_reduce(numpy.ones(1000, numpy.int32), op="sum").tolist() == 1000 * [{workers}])
"""

_JOIN_WITH_A_FALLBACK = """
import innet
from innet.host.fallback import GlooFallback
innet.join(fallback=GlooFallback(2, None, None)).close(abandon=True)
"""


@pytest.fixture(autouse=True)
def able() -> None:
    if reason := namespaces.unavailable():
        pytest.skip(reason)
    if not shutil.which("ethtool"):
        pytest.skip("there is no ethtool on the PATH")


@pytest.mark.parametrize("switch", ["innet-switch", "simple_switch_grpc"])
def test_the_deployed_rack_trains_through_the_switch(switch: str, tmp_path: Path):
    if switch != "innet-switch" and not shutil.which(switch):
        pytest.skip(f"there is no {switch} (BMv2) on the PATH")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with machines(tmp_path) as made:
        build(made)
        made.run("controller", RACK["controller: certificates"])
        made.serve("switch", RACK[f"switch: {switch}"], "controller", "192.168.1.2:9559")
        serve = "controller", RACK["controller: serve"], "worker 0", "192.168.1.1:9600"
        controller = made.serve(*serve)
        made.run("controller", RACK["controller: switch"])
        made.run("controller", RACK[f"controller: {switch} job"])
        kill(controller)
        made.serve(*serve)  # goes on where the first one stopped, as the page promises
        for rank in range(2):
            made.run(f"worker {rank}", RACK["each worker: offloads"])
        summed = [trained(made) for _ in until_the_switch_answers(made)]
        settings, _, _ = RACK["worker 0: train"].partition("torchrun")
        alone = f"{settings}RANK=0 MASTER_ADDR=%s python -c '{_JOIN_WITH_A_FALLBACK}'"
        warned = made.run("worker 0", alone % "10.0.0.1")
        silent = made.run("worker 0", alone % "192.168.1.10")

    # Every chunk of every step was summed in the switch.
    assert summed[-1] >= STEPS * CHUNKS
    assert "the fallback goes through the switch (MASTER_ADDR=10.0.0.1)" in warned
    assert silent == ""


def until_the_switch_answers(made: Machines) -> Iterator[None]:
    """Yield until, from one yield to the next, the switch has not kept a worker waiting.

    On a busy machine, the switch's process may get no processor for a second. Then a worker asks for
    another term, which takes the fallback, as the page says. A quick fallback can do all other steps.
    """
    show = RACK["controller: show"].replace("job show", "job history --json")
    for _ in range(RUNS):
        before = made.run("controller", show).count("the switch has not answered")
        yield
        if made.run("controller", show).count("the switch has not answered") == before:
            return
    pytest.fail(f"in each of {RUNS} runs the switch has not answered for a while")


def trained(made: Machines) -> int:
    """Train once. Return how many chunks the switch has summed meanwhile."""
    before = made.run("controller", RACK["controller: show"])
    training = [made.start(f"worker {rank}", RACK[f"worker {rank}: train"]) for rank in range(2)]
    said = [finished(each) for each in training]
    # Whatever way they have taken, all workers have the same parameters.
    [one], [other] = (re.findall(r"parameters (\w{64})", each) for each in said)
    assert one == other
    assert "goes through the switch" not in "".join(said)
    shown = made.run("controller", RACK["controller: show"])
    return counted(shown, "completed") - counted(before, "completed")


def build(made: Machines) -> None:
    """Build the machines of the page's table."""
    address = r"\d+\.\d+\.\d+\.\d+"
    text = (ROOT / "docs/deploy.md").read_text()
    rows = re.findall(rf"^\| ([\w ]+) \| ({address}) at `eth0` \| (.*?) ?\|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["controller", "switch", "worker 0", "worker 1"]
    for name, management, _ in rows:
        made.add(name, management)
    for name, _, place in rows[2:]:
        [(ip, port)] = re.findall(rf"^({address}) at `eth1`, connected to port (\d)$", place)
        made.cable(name, "eth1", "switch", f"eth{port}")
        made.set_address(name, "eth1", ip)


def counted(shown: str, counter: str) -> int:
    """Return a counter that `innet job show` prints."""
    [number] = re.findall(rf"{counter} +│ +(\d+)", shown)
    return int(number)


@dataclass(frozen=True)
class Added:
    """A switch that docs/recovery.md adds: its port `uplink` leads to the `parent_port` of its parent."""

    name: str
    ip: str
    ports: int
    parent: str
    uplink: str
    parent_port: str


def test_the_tree_of_the_page_about_terms_sums_through_all_of_its_switches(tmp_path: Path):
    block = TREE["controller: tree"]
    added = re.findall(
        r"switch add (\w+) +([\d.]+):9559 --ports 1-(\d).*?(?: --uplink (\w+):(\d):(\d))?$",
        block,
        re.MULTILINE,
    )
    switches = [Added(name, ip, int(ports), *uplink) for name, ip, ports, *uplink in added]
    [workers] = map(int, re.findall(r"--workers (\d)", block))
    settings = "export INNET_CONTROLLER=192.168.1.1:9600 INNET_TLS=certs\n"
    make(tmp_path / "certs", ["192.168.1.1", *(each.ip for each in switches)])
    with machines(tmp_path) as made:
        build_tree(made, switches)
        for each in switches:
            made.serve(each.name, innet_switch(each), "controller", f"{each.ip}:9559")
        serve = "innet controller --address 192.168.1.1:9600 --tls certs"
        made.serve("controller", serve, "spine", "192.168.1.1:9600")
        made.run("controller", settings + block)
        joining = settings + "export INNET_JOB=train INNET_TOKEN=$(cat train.token)\n"
        give = f"python -c '{_GIVE_A_ONE.format(workers=workers)}'"
        summing = [
            made.start(f"worker {rank}", f"{joining}RANK={rank} {give}") for rank in range(workers)
        ]
        assert [finished(each) for each in summing] == workers * ["True\n"]
        shown = made.run("controller", f"{settings}innet job show train")
    counts = re.findall(r"^│ (\w+) .*?│ (\d+) +│ (\d+) +│ \d", shown, re.MULTILINE)
    assert {name for name, completed, _ in counts if int(completed)} == {"spine", "left", "right"}
    assert {name for name, _, raised in counts if int(raised)} == {"left", "right"}


def build_tree(made: Machines, switches: Sequence[Added]) -> None:
    """Build the controller, the switches, and a worker at each port without a cable to a switch."""
    made.add("controller", "192.168.1.1")
    for each in switches:
        made.add(each.name, each.ip)
    for child in (each for each in switches if each.parent):
        made.cable(child.name, f"eth{child.uplink}", child.parent, f"eth{child.parent_port}")
    used = {(each.name, each.uplink) for each in switches}
    used |= {(each.parent, each.parent_port) for each in switches}
    ports = ((each.name, str(port)) for each in switches for port in range(1, each.ports + 1))
    for rank, (switch, port) in enumerate(place for place in ports if place not in used):
        made.add(f"worker {rank}", f"192.168.1.{rank + 10}")
        made.cable(f"worker {rank}", "eth1", switch, f"eth{port}")
        made.set_address(f"worker {rank}", "eth1", f"10.0.0.{rank + 1}")


def innet_switch(switch: Added) -> str:
    """Return the rack's command for innet-switch, for the ports and the address of a switch."""
    interfaces = " ".join(f"-i {port}@eth{port}" for port in range(1, switch.ports + 1))
    return (
        RACK["switch: innet-switch"]
        .replace("-i 1@eth1 -i 2@eth2", interfaces)
        .replace("192.168.1.2", switch.ip)
    )
