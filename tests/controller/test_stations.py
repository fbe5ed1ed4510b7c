"""A worker cannot get frames for others from the switch, whatever address it sends a hello from."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator

import pytest
from assignments import alone
from commands import refuse, run
from mortal import MortalSwitch, mortal_switch, rack_of
from racks import Rack
from scripted_worker import WITHIN, ScriptedWorker, scripted
from working_job import assert_sums, at_work, renew

from innet.controller.jobs.host_addresses import HostAddresses, check_host_address
from innet.controller.jobs.records import Assignment, Attachment, SlotRange, Station, Uplink
from innet.controller.server import ControllerServer
from innet.controller.state.inventory import broadcast_domain
from innet.controller.state.registry import Policy
from innet.controller.state.validation import switch_record
from innet.controller.switches.entries import Forwarding
from innet.controller.switches.names import Names
from innet.controller.switches.reconcile import key
from innet.errors import AlreadyExists, InnetError, UsageError
from innet.p4.artifacts import artifact
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import Address

NAMES = Names(artifact(64).p4info)
SERVICE = Address("02:00:00:00:00:fe", "10.0.0.254")
MAC = "02:00:00:00:00:01"


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(4) as running:
        yield running


@pytest.fixture(scope="module")
def tor(switch: MortalSwitch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=WITHIN)) as rack:
        yield rack


def refusal(worker: ScriptedWorker) -> InnetError:
    """Return the error with which a worker's stream ends when it sends a hello."""
    worker.invited()
    with pytest.raises(InnetError) as caught:
        worker.admitted()
    return caught.value


@pytest.mark.parametrize(
    ("mac", "ip", "why"),
    [
        ("ff:ff:ff:ff:ff:ff", "10.0.0.1", "not that of a single host"),
        ("01:00:5e:00:00:01", "10.0.0.1", "not that of a single host"),
        ("00:00:00:00:00:00", "10.0.0.1", "not that of a single host"),
        ("02:00:00:00:00:fe", "10.0.0.1", "that of a switch itself"),
        (
            MAC,
            "0.0.0.0",  # noqa: S104
            "not that of a single host",
        ),
        (MAC, "224.0.0.1", "not that of a single host"),
        (MAC, "255.255.255.255", "not that of a single host"),
        (MAC, "10.0.0.254", "that of a switch itself"),
    ],
)
def test_an_address_that_no_worker_can_have_is_refused(mac: str, ip: str, why: str):
    with pytest.raises(UsageError, match=f"{why}: a worker sends from the address of its own"):
        check_host_address(Address(mac, ip), [SERVICE])


def test_no_worker_has_a_switchs_address_however_that_is_written():
    written = Address(SERVICE.mac.upper(), SERVICE.ip)
    with pytest.raises(UsageError, match="that of a switch itself"):
        check_host_address(Address(SERVICE.mac, "10.0.0.1"), [written])


@pytest.mark.parametrize("mac", ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"])
def test_a_worker_that_says_hello_from_a_groups_address_is_told_so(tor: Rack, mac: str):
    with tor.job(1) as job, scripted(tor, job, 0) as worker:
        worker.address = dataclasses.replace(worker.address, mac=mac)
        assert f"the MAC address {mac} is not that of a single host" in str(refusal(worker))
        assert not tor.show(job).joined


@pytest.mark.parametrize("same_job", [True, False])
def test_a_worker_cannot_have_the_address_of_another_at_another_port(tor: Rack, same_job: bool):
    with tor.job(2) as job, tor.job(2) as other, scripted(tor, job, 0) as victim:
        victim.settle()
        with scripted(tor, job if same_job else other, 1) as thief:
            thief.address = dataclasses.replace(thief.address, mac=victim.address.mac)
            problem = refusal(thief)
        assert isinstance(problem, AlreadyExists)
        assert f"{victim.address.mac} is that of a worker at port 1 of 'tor'" in str(problem)
        assert victim.quiet()


def test_workers_of_one_host_share_its_address(tor: Rack):
    with (
        tor.job(1) as one,
        tor.job(1) as other,
        scripted(tor, one, 0) as first,
        scripted(tor, other, 0, port=2) as second,
    ):
        first.settle()
        second.address = dataclasses.replace(first.address, udp_port=first.address.udp_port ^ 1)
        second._cable.close()
        second._cable = first._cable  # it is at port 1 as well
        second.settle()
        assert [tor.show(job).members[0].port for job in (one, other)] == [1, 1]


def test_an_address_moves_only_with_all_workers_that_have_it():
    addresses, here, there = HostAddresses(), Attachment(1, Address(MAC, "10.0.0.1"), "tor"), 7
    others = {5: here, 6: here}
    moved = dataclasses.replace(here, port=there)
    with pytest.raises(AlreadyExists, match="a worker at port 1 of 'tor'"):
        addresses.check(9, moved, others, [])  # somebody else
    with pytest.raises(AlreadyExists):
        addresses.check(5, moved, others, [])  # 6 is still there, as far as we know
    addresses.check(6, moved, others, [])
    addresses.check(5, moved, {5: here, 6: moved}, [])
    with pytest.raises(AlreadyExists):
        addresses.check(9, here, {5: moved, 6: moved}, [])


def test_a_worker_moves_with_its_nonce_and_not_to_anothers_address(tor: Rack):
    with at_work(tor) as (first, second):
        own = second.address
        second.address = dataclasses.replace(own, mac=first.address.mac)
        second.say_hello()
        second.address = dataclasses.replace(own, mac="02:00:00:00:77:01")
        second.say_hello()
        renew([first, second], 0, 0)  # for the second hello only
        for each in (first, second):
            each.hear("resume")
        [_, member] = tor.show(second.job).members
        assert member.address.mac == "02:00:00:00:77:01"
        assert_sums([first, second], 1)


def test_frames_pass_between_switches_of_one_tree():
    links = {"left": (Uplink("spine", 1, 1),), "right": (Uplink("spine", 1, 2),), "spine": ()}
    assert broadcast_domain("left", {**links, "other": ()}) == {"left", "right", "spine"}
    assert broadcast_domain("other", {**links, "other": ()}) == {"other"}


def test_an_address_at_two_ports_is_forwarded_to_neither():
    def job(number: int, **ports: int) -> Assignment:
        workers = {
            rank: Attachment(port, Address(mac.replace("_", ":"), "10.0.0.1"), "tor")
            for rank, (mac, port) in enumerate(ports.items())
        }
        return alone(number, SlotRange(number, 8 * number, 8), 1, 2, workers)

    once, group = {"02_00_00_00_00_01": 1}, {"ff_ff_ff_ff_ff_ff": 1}
    assert len(Forwarding(NAMES).entities([job(1, **once), job(2, **once)])) == 1
    assert Forwarding(NAMES).entities([job(1, **once), job(2, **{"02_00_00_00_00_01": 3})]) == {}
    assert Forwarding(NAMES).entities([job(1, **group)]) == {}


def test_a_station_is_forwarded_to_its_port_whatever_workers_say():
    station, mine = Station("02:00:00:00:00:09", 5), Station(MAC, 5)
    liar = Attachment(2, Address(MAC, "10.0.0.1"), "tor")
    job = alone(1, SlotRange(1, 8, 8), 1, 1, {0: liar})
    expected = {
        key(each): each
        for each in (
            NAMES.entry(
                "bridge", {"destination": int(mac.replace(":", ""), 16)}, "forward", {"port": 5}
            )
            for mac in (station.mac, MAC)
        )
    }
    assert Forwarding(NAMES).entities([job], [station, mine]) == expected


@pytest.mark.parametrize(
    ("stations", "why"),
    [
        ([("ff:ff:ff:ff:ff:ff", 1)], "give a machine's MAC address"),
        ([("02:00:00:00:00", 1)], "give a machine's MAC address"),
        ([(MAC, 3)], "is at port 3: name a port of the switch"),
        ([("02:00:00:00:00:0a", 1), ("02:00:00:00:00:0A", 2)], "named twice"),
        ([(f"02:00:00:00:00:{each:02x}", 1) for each in range(65)], "65 stations are too many"),
    ],
)
def test_stations_that_cannot_be_are_refused(stations: list[tuple[str, int]], why: str):
    request = pb.AddSwitchRequest(name="tor", grpc_address="127.0.0.1:1", ports=[1, 2])
    for mac, port in stations:
        request.stations.add(mac=mac, port=port)
    with pytest.raises(UsageError, match=why):
        switch_record(request)


def test_a_switch_is_added_with_a_station_whose_port_it_keeps():
    with (
        mortal_switch(4) as switch,
        contextlib.closing(ControllerServer("127.0.0.1:0")) as server,
    ):
        at = ["--controller", f"127.0.0.1:{server.port}"]
        add = ["switch", "add", "tor", switch.address, "--ports", "1-4"]
        refuse("'4' is not a station: write PORT@MAC", "innet", *add, "--station", "4", *at)
        done = run("innet", *add, "--station", "4@02:00:00:00:00:0A", *at)
        assert done.returncode == 0, done.stderr
        shown = json.loads(run("innet", "switch", "show", "tor", "--json", *at).stdout)
        assert shown["stations"] == [{"mac": "02:00:00:00:00:0a", "port": 4}]
        assert "02:00:00:00:00:0a at port 4" in run("innet", "switch", "show", "tor", *at).stdout
        used = "port 4 of 'tor' is in use by the station 02:00:00:00:00:0a"
        refuse(used, "innet", "switch", "set", "tor", "--ports", "1-3", *at)
