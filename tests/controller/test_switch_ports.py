"""A switch's ports change while it runs. A request for a port that it lacks is refused at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run
from mortal import MortalController, MortalSwitch, add_switch, mortal_switch, rack_of, serving_rack
from racks import Rack
from scripted_worker import WITHIN, scripted
from working_job import Intruder, assert_sums, at_work, eventually

from innet.controller.deploy import deploy
from innet.controller.state.registry import Policy
from innet.controller.switches.names import all_groups
from innet.errors import ControllerError, NotFound, UsageError
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import translated


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@pytest.fixture
def tor(switch: MortalSwitch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=WITHIN)) as rack:
        yield rack


def change(tor: Rack, *ports: int, name: str = "tor") -> list[int]:
    """Give the switch these ports. Returns the ports that it has afterwards."""
    with translated("change the switch"):
        request = pb.SetSwitchPortsRequest(name=name, ports=ports)
        return [*tor.stub.SetSwitchPorts(request).ports]


def flooded(switch: MortalSwitch) -> set[int]:
    """Return the ports that the switch floods to."""
    with contextlib.closing(Intruder(switch.address)) as reader:
        answers = reader.stub.Read(p4rt.ReadRequest(entities=[all_groups()]))
        groups = [
            entity.packet_replication_engine_entry.multicast_group_entry
            for answer in answers
            for entity in answer.entities
        ]
    flood = next(group for group in groups if group.multicast_group_id == 1)
    return {replica.egress_port for replica in flood.replicas}


def test_ports_change_while_the_jobs_go_on(tor: Rack, switch: MortalSwitch):
    with at_work(tor) as workers:
        assert change(tor, 1, 2) == [1, 2]
        eventually(lambda: flooded(switch) == {1, 2})
        assert_sums(workers, 1)
        assert change(tor, 4, 3, 2, 1) == [4, 3, 2, 1]
        eventually(lambda: flooded(switch) == {1, 2, 3, 4})
        assert_sums(workers, 2)
        assert all(each.quiet() for each in workers)
        with tor.job(1) as job, scripted(tor, job, 0, port=4) as worker:
            worker.settle()


@pytest.mark.parametrize(
    ("ports", "kind", "why"),
    [
        ([1, 3, 4], ControllerError, "port 2 of 'tor' is in use by worker 1 of the job 'job-0'"),
        ([1, 2, 9], UsageError, "has no port 9: it has 1, 2, 3, 4"),
        ([], UsageError, "a switch needs ports"),
        ([1, 2, 2], UsageError, "each once"),
    ],
)
def test_ports_that_cannot_be_are_refused_and_nothing_changes(tor: Rack, ports, kind, why: str):
    with at_work(tor) as workers:
        with pytest.raises(kind, match=why):
            change(tor, *ports)
        [shown] = tor.stub.ListSwitches(pb.ListSwitchesRequest()).switches
        assert [*shown.ports] == [1, 2, 3, 4]
        assert_sums(workers, 1)


def test_only_a_switch_that_is_there_can_get_other_ports(tor: Rack):
    with pytest.raises(NotFound, match="there is no switch 'spine'"):
        change(tor, 1, name="spine")


def test_the_ends_of_links_between_switches_have_to_stay(tor: Rack):
    with mortal_switch(2) as below:
        request = pb.AddSwitchRequest(
            name="rack", grpc_address=below.address, ports=[1, 2],
            uplinks=[pb.Uplink(parent="tor", port=2, parent_port=4)],
        )  # fmt: skip
        tor.stub.AddSwitch(request)
        with pytest.raises(ControllerError, match="in use by the uplink to 'tor'"):
            change(tor, 1, name="rack")
        with pytest.raises(ControllerError, match="port 4 of 'tor' is in use by the switch 'rack'"):
            change(tor, 1, 2, 3)
        tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="rack"))


def test_uplinks_that_cannot_be_are_refused(tor: Rack):
    def attach(name: str, *links: tuple[str, int, int], ports: tuple[int, ...] = ()) -> pb.Switch:
        uplinks = [pb.Uplink(parent=up, port=port, parent_port=there) for up, port, there in links]
        request = pb.SetSwitchPortsRequest(
            name=name, ports=ports, uplinks=pb.Uplinks(links=uplinks)
        )
        with translated("change the switch"):
            return tor.stub.SetSwitchPorts(request)

    with mortal_switch(2) as below:
        tor.stub.AddSwitch(
            pb.AddSwitchRequest(name="rack", grpc_address=below.address, ports=[1, 2])
        )
        with at_work(tor) as workers:
            with pytest.raises(ControllerError, match="in use by worker 0 of the job"):
                attach("tor", ("rack", 1, 1))
            attach("rack", ("tor", 2, 4))
            assert_sums(workers, 1)
        with pytest.raises(UsageError, match="'rack' is below 'tor'"):
            attach("tor", ("rack", 1, 1))
        with pytest.raises(UsageError, match="'rack' cannot be its own parent"):
            attach("rack", ("rack", 1, 2))
        with pytest.raises(UsageError, match="'tor' has no port 5"):
            attach("rack", ("tor", 2, 5))
        with pytest.raises(ControllerError, match="in use by the uplink to 'tor'"):
            attach("rack", ("tor", 2, 4), ports=(1,))
        assert [each.port for each in attach("rack", ("tor", 1, 3)).uplinks] == [1]
        assert not attach("rack").uplinks
        tor.stub.RemoveSwitch(pb.RemoveSwitchRequest(name="rack"))


def test_ports_that_a_switch_lacks_are_refused_when_it_is_added(tor: Rack):
    with mortal_switch(2) as bare:
        request = pb.AddSwitchRequest(name="bare", grpc_address=bare.address, ports=[1, 3, 4])
        with (
            pytest.raises(UsageError, match="has no port 3, 4: it has 1, 2"),
            translated("add the switch"),
        ):
            tor.stub.AddSwitch(request)
        assert [each.name for each in tor.stub.ListSwitches(pb.ListSwitchesRequest()).switches] == [
            "tor"
        ]
        with pytest.raises(UsageError, match="has no port 3, 4: it has 1, 2"):
            deploy(request, None, lambda _: None, dry_run=False)


def test_other_ports_outlive_the_controller(switch: MortalSwitch, tmp_path: Path):
    state = tmp_path / "state"
    controller = MortalController("--state", str(state))
    try:
        with serving_rack(controller.address, switch) as rack:
            add_switch(rack, switch)
            done = run(
                "innet",
                "switch",
                "set",
                "tor",
                "--ports",
                "2-3",
                INNET_CONTROLLER=controller.address,
            )
            assert (done.returncode, done.stdout) == (0, "switch tor: ports 2, 3\n"), done.stderr
        controller.kill()
        controller.start()
        with serving_rack(controller.address, switch) as rack:
            [shown] = rack.stub.ListSwitches(pb.ListSwitchesRequest()).switches
            assert [*shown.ports] == [2, 3]
    finally:
        controller.stop()
