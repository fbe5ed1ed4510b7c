"""A tour of p4runtime-shell's operations on a switch.

It runs in the shell's environment, and imports nothing of innet. Its arguments are the switch's address,
and the descriptor of the far end of each port. It prints "done" at the end.
"""

import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_sh import shell as sh
from p4runtime_sh.context import P4Type
from p4runtime_sh.p4runtime import P4RuntimeWriteException

DEVICE = 3
WITHIN, MOST = 250.0, 1 << 16
FOLDER = Path(__file__).with_name("programs")
HOSTS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


@dataclass(frozen=True)
class Switch:
    """A running switch, with the far ends of its ports."""

    address: str
    hosts: list[socket.socket]


STEPS: list[Callable[[Switch], None]] = []


def step(function: Callable[[Switch], None]) -> Callable[[Switch], None]:
    STEPS.append(function)
    return function


def frame(source: int = 0x01, destination: int = 0x02, ether_type: int = 0x88B5) -> bytes:
    mac = 0x0200_0000_0000
    addresses = ((mac | each).to_bytes(6, "big") for each in (destination, source))
    return b"".join(addresses) + ether_type.to_bytes(2, "big") + b"payload"


def entry(table: str, action: str, **params: str) -> sh.TableEntry:
    made = sh.TableEntry(table)(action=action)
    made.action.set(**params)
    return made


@step
def it_lists_what_the_program_has(_: Switch) -> None:
    tables = sh.P4Objects(P4Type.table)
    names = {table.name.rpartition(".")[2] for table in tables}
    assert names == {
        "learning", "acl", "mirrors", "bridge", "routes", "shared", "balanced",
    }  # fmt: skip
    assert tables["bridge"].preamble.alias == "bridge"
    assert sh.APIVersion() == "1.4.1"


@step
def it_inserts_modifies_reads_and_deletes_table_entries(switch: Switch) -> None:
    one = entry("bridge", "to_port", port="2")
    one.match["destination"] = HOSTS[1]
    one.insert()
    switch.hosts[0].send(frame())
    assert switch.hosts[1].recv(MOST) == frame()
    one.action["port"] = "1"
    one.modify()
    switch.hosts[0].send(frame())
    assert switch.hosts[0].recv(MOST) == frame()
    found = list(sh.TableEntry("bridge").read())
    assert [str(each) for each in found] == [str(one)]
    one.delete()
    assert list(sh.TableEntry("bridge").read()) == []
    try:
        one.delete()
    except P4RuntimeWriteException as problem:
        assert "NOT_FOUND" in str(problem)  # noqa: PT017
    else:
        raise AssertionError


@step
def it_writes_all_kinds_of_matches(_: Switch) -> None:
    route = entry("routes", "forward", port="1")
    route.match["destination"] = "02:00:00:00:00:00/40"
    route.insert()
    rule = sh.TableEntry("acl")(action="metered", priority=10)
    rule.match["source"] = "02:00:00:00:00:00&&&ff:00:00:00:00:00"
    rule.match["type"] = "0x800..0x8ff"
    rule.match["port"] = "1"
    rule.insert()
    for each in (route, rule):
        assert [str(one) for one in each.read()] == [str(each)]
        each.delete()


@step
def it_sets_and_resets_a_default_action(switch: Switch) -> None:
    default = sh.TableEntry("routes")(is_default=True)
    default.action = sh.Action("forward")
    default.action["port"] = "2"
    default.modify()
    switch.hosts[0].send(frame())
    assert switch.hosts[1].recv(MOST) == frame()
    reset = sh.TableEntry("routes")(is_default=True)
    reset.modify()


@step
def it_reads_and_writes_counters(switch: Switch) -> None:
    cells = list(sh.CounterEntry("frames").read())
    assert len(cells) == 512
    one = sh.CounterEntry("frames")
    one.index = 1
    one.packet_count, one.byte_count = 5, 500
    one.modify()
    known = entry("bridge", "to_port", port="2")
    known.match["destination"] = HOSTS[1]
    known.insert()
    switch.hosts[0].send(frame())
    switch.hosts[1].recv(MOST)
    [cell] = one.read()
    assert (cell.packet_count, cell.byte_count) == (6, 500 + len(frame()))
    direct = sh.DirectCounterEntry("forwarded")
    direct.table_entry.match["destination"] = HOSTS[1]
    [cell] = direct.read()
    assert (cell.packet_count, cell.byte_count) == (1, len(frame()))
    direct.packet_count = 0
    direct.modify()
    [cell] = direct.read()
    assert cell.packet_count == 0
    known.counter_data.packet_count = 70
    [cell] = known.read()
    assert cell.counter_data.packet_count == 0
    known.delete()


@step
def it_configures_meters(_: Switch) -> None:
    one = sh.MeterEntry("policer")
    one.index = 2
    one.cir, one.cburst, one.pir, one.pburst = 1, 2, 3, 4
    one.modify()
    [cell] = one.read()
    assert (cell.cir, cell.cburst, cell.pir, cell.pburst) == (1, 2, 3, 4)
    rule = sh.TableEntry("acl")(action="metered", priority=1)
    rule.match["port"] = "1"
    rule.insert()
    direct = sh.DirectMeterEntry("rate")
    direct.table_entry.match["port"] = "1"
    direct.table_entry.priority = 1
    direct.cir, direct.cburst, direct.pir, direct.pburst = 5, 6, 7, 8
    direct.modify()
    [cell] = direct.read()
    assert (cell.cir, cell.pburst) == (5, 8)
    rule.delete()


@step
def it_uses_profiles_groups_and_one_shots(switch: Switch) -> None:
    rewrite = sh.ActionProfileMember("members")(member_id=1, action="rewrite")
    rewrite.action["address"] = HOSTS[0]
    rewrite.insert()
    shared = sh.TableEntry("shared")
    shared.match["type"] = "0x88b5"
    shared.member_id = 1
    shared.insert()
    paths = []
    for number in (1, 2):
        path = sh.ActionProfileMember("paths")(member_id=number, action="forward")
        path.action["port"] = "2"
        path.insert()
        paths.append(path)
    group = sh.ActionProfileGroup("paths")(group_id=4)
    group.add(1, 2).add(2)
    group.insert()
    balanced = sh.TableEntry("balanced")
    balanced.match["type"] = "0x88b5"
    balanced.group_id = 4
    balanced.insert()
    switch.hosts[0].send(frame())
    assert switch.hosts[1].recv(MOST) == frame(destination=1)
    assert len(list(sh.ActionProfileMember("paths").read())) == 2
    [found] = sh.ActionProfileGroup("paths").read()
    assert str(found) == str(group)
    for each in (balanced, group, *paths):
        each.delete()
    once = sh.TableEntry("balanced")
    once.match["type"] = "0x88b5"
    action = sh.Action("forward")
    action["port"] = "1"
    once.oneshot = sh.Oneshot("balanced").add(action)
    once.insert()
    switch.hosts[1].send(frame())
    assert switch.hosts[0].recv(MOST) == frame(destination=1)
    for each in (once, shared, rewrite):
        each.delete()


@step
def it_programs_groups_and_clone_sessions(switch: Switch) -> None:
    sh.MulticastGroupEntry(1).add(1, 1).add(2, 2).insert()
    sh.CloneSessionEntry(7).add(2, 1).insert()
    copies = entry("mirrors", "copy_to_group", group="1")
    copies.match["port"] = "1"
    copies.insert()
    mirrored = sh.TableEntry("mirrors")(action="mirror")
    mirrored.match["port"] = "2"
    mirrored.insert()
    known = entry("bridge", "to_port", port="1")
    known.match["destination"] = HOSTS[1]
    known.insert()
    for sender in switch.hosts:  # each gets a copy: first from the group, then from the session
        sender.send(frame())
        for host in switch.hosts:
            assert host.recv(MOST) == frame()
    assert len(list(sh.MulticastGroupEntry().read())) == 1
    [session] = sh.CloneSessionEntry(7).read()
    assert session.session_id == 7
    session.add(1, 5).modify()
    for each in (copies, mirrored, known, session, sh.MulticastGroupEntry(1)):
        each.delete()


@step
def it_sends_and_receives_packets(switch: Switch) -> None:
    packets = sh.PacketIn()
    sh.PacketOut(frame(), egress_port="2").send()
    assert switch.hosts[1].recv(MOST) == frame()
    route = entry("routes", "forward", port="510")
    route.match["destination"] = HOSTS[1] + "/48"
    route.insert()
    switch.hosts[1].send(frame())
    packet = packets.packet_in_queue.get(timeout=WITHIN).packet
    assert packet.payload == frame()
    assert packet.metadata[0].value == b"\2"
    route.delete()


@step
def it_hears_digests_and_idle_entries(switch: Switch) -> None:
    digests, idle = sh.DigestList(), sh.IdleTimeoutNotification()
    wanted = sh.DigestEntry("station_t")
    wanted.max_list_size, wanted.max_timeout_ns, wanted.ack_timeout_ns = 1, 0, 0
    wanted.insert()
    learning = sh.TableEntry("learning")(action="learn", idle_timeout_ns=10_000_000)
    learning.match["source"] = HOSTS[0]
    learning.insert()
    switch.hosts[0].send(frame())
    [heard] = digests.digest_list_queue.get(timeout=WITHIN).digest.data
    members = [each.bitstring for each in heard.struct.members]
    assert members == [frame()[6:12], b"\1"]
    told = idle.notification_queue.get(timeout=WITHIN).idle_timeout_notification
    assert told.table_entry[0].match[0].exact.value == frame()[6:12]
    learning.delete()
    wanted.delete()


@step
def it_writes_a_request_from_a_file(_: Switch) -> None:
    one = entry("bridge", "drop")
    one.match["destination"] = HOSTS[0]
    one._update_msg()
    entity = p4rt.Entity(table_entry=one._entry)
    request = p4rt.WriteRequest(updates=[p4rt.Update(type=p4rt.Update.INSERT, entity=entity)])
    with tempfile.NamedTemporaryFile("w", suffix=".txtpb") as file:
        file.write(text_format.MessageToString(request))
        file.flush()
        sh.Write(file.name)
    assert [str(each) for each in sh.TableEntry("bridge").read()] == [str(one)]


def main(address: str, *descriptors: str) -> None:
    config = sh.FwdPipeConfig(str(FOLDER / "tutorial.p4info.txtpb"), str(FOLDER / "tutorial.json"))
    socket.setdefaulttimeout(WITHIN)
    switch = Switch(address, [socket.socket(fileno=int(each)) for each in descriptors])
    sh.setup(DEVICE, address, (0, 1), config=config, verbose=False)
    sh.global_options["canonical_bytestrings"] = True  # reads then equal writes
    for each in STEPS:
        print(each.__name__, flush=True)  # noqa: T201
        each(switch)
    sh.teardown()
    print("done")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
