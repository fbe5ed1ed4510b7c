"""P4Runtime's multicast groups and counters."""

from p4runtime_client import Names, group, update_errors
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from switches import receive
from tiny_programs import program

from innet.p4.artifacts import artifact
from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

ROUTER = program("router")
ROUTES = Names(ROUTER.p4info)
AGGREGATION = artifact(64)
NAMES = Names(AGGREGATION.p4info)


def route(value: int, length: int) -> p4rt.Entity:
    match = {"destination": (value, length)}
    return ROUTES.entry("routes", match, "forward", next_hop=0x0200_0000_0001, port=1)


def test_multicast_groups_are_inserted_modified_deleted_and_read(bridge):
    one, two = group(1, (1, 1), (2, 1)), group(65535, (1, 1), (1, 2))
    bridge.insert(one, two)
    assert bridge.read(group(0)) == [one, two]
    bridge.modify(group(1, (2, 7)))
    assert bridge.read(group(1)) == [group(1, (2, 7))]
    bridge.delete(group(1))
    assert bridge.read(group(1)) == []
    assert bridge.read(group(0)) == [two]


def test_ports_of_groups_and_sessions_are_read_in_the_shortest_form(bridge):
    written, padded = p4rt.Entity(), p4rt.Entity()
    for entity, port in ((written, b"\2"), (padded, b"\0\0\2")):
        message = entity.packet_replication_engine_entry.multicast_group_entry
        message.multicast_group_id = 7
        message.replicas.add(port=port, instance=1)
    bridge.insert(padded)
    assert bridge.read(group(7)) == [written]
    bridge.delete(group(7))
    for entity in (written, padded):
        message = entity.packet_replication_engine_entry
        replicas = message.multicast_group_entry.replicas[:]
        message.clone_session_entry.session_id = 7
        message.clone_session_entry.replicas.extend(replicas)
    bridge.insert(padded)
    assert bridge.read(written) == [written]
    bridge.delete(padded)


def test_multicast_groups_that_are_or_are_not_there_are_told_apart(bridge):
    bridge.insert(group(5))
    assert update_errors(bridge.insert, group(5)) == [
        (code_pb2.ALREADY_EXISTS, "multicast group 5 exists already: modify it")
    ]
    for call in (bridge.modify, bridge.delete):
        assert update_errors(call, group(6)) == [
            (code_pb2.NOT_FOUND, "there is no multicast group 6")
        ]
    for number in (0, 65536):
        assert update_errors(bridge.insert, group(number))[0][0] == code_pb2.INVALID_ARGUMENT


def test_counters_are_written_and_read_one_cell_or_all_of_them(bridge):
    cell = NAMES.counter("outcomes", 17)
    cell.counter_entry.data.packet_count = 1 << 40
    bridge.modify(cell)
    assert bridge.count(NAMES.counter("outcomes", 17)) == [1 << 40]
    cells = bridge.read(NAMES.counter("outcomes"))
    assert [each.counter_entry.index.index for each in cells] == list(range(16 * 256))
    assert {each.counter_entry.data.packet_count for each in cells} == {0, 1 << 40}
    everything = p4rt.Entity()
    everything.counter_entry.SetInParent()
    assert len(bridge.read(everything)) == 3 * 512 + 16 * 256


def test_counter_cells_that_do_not_exist_are_refused(bridge):
    outside, unknown = NAMES.counter("outcomes", 16 * 256), p4rt.Entity()
    unknown.counter_entry.counter_id = 99
    negative = NAMES.counter("outcomes", -1)
    answers = update_errors(bridge.read, outside, NAMES.counter("outcomes", 0), unknown, negative)
    assert [code for code, _ in answers] == [
        code_pb2.OUT_OF_RANGE, code_pb2.OK, code_pb2.NOT_FOUND, code_pb2.INVALID_ARGUMENT,
    ]  # fmt: skip
    for call in (bridge.insert, bridge.delete):
        [(code, _)] = update_errors(call, NAMES.counter("outcomes", 0))
        assert code == code_pb2.INVALID_ARGUMENT


def test_without_an_index_all_cells_of_a_counter_are_set(bridge):
    cells = NAMES.counter("outcomes")
    cells.counter_entry.data.packet_count = 5
    bridge.modify(cells)
    assert set(bridge.count(cells)) == {5}
    bridge.modify(NAMES.counter("outcomes"))  # without data nothing is modified
    assert set(bridge.count(cells)) == {5}


def test_direct_counters_belong_to_their_entries(router):
    router.insert(route(0x0A000000, 8), route(0x0B000000, 8))
    counter = p4rt.Entity()
    counter.direct_counter_entry.table_entry.CopyFrom(route(0x0A000000, 8).table_entry)
    counter.direct_counter_entry.data.packet_count = 3
    counter.direct_counter_entry.data.byte_count = 300
    router.modify(counter)
    asked = ROUTES.entry("routes")
    asked.table_entry.counter_data.SetInParent()
    counts = [each.table_entry.counter_data for each in router.read(asked)]
    assert [(each.packet_count, each.byte_count) for each in counts] == [(3, 300), (0, 0)]
    assert router.read(counter) == [counter]
    counter.direct_counter_entry.table_entry.CopyFrom(route(0x0C000000, 8).table_entry)
    assert update_errors(router.modify, counter)[0][0] == code_pb2.NOT_FOUND


LARGEST = (1 << 63) - 1
"""The largest number in P4Runtime. The switch counts to twice as many."""


def test_a_count_that_p4runtime_has_no_room_for_goes_on_below_zero(controller, switch):
    controller.configure(program("extern_counters"))
    names = Names(program("extern_counters").p4info)
    cell = names.counter("both", 2)
    cell.counter_entry.data.packet_count = cell.counter_entry.data.byte_count = LARGEST
    controller.modify(cell)
    switch.hosts[0].send(bytes([0, 0, 0, 2]) + bytes(8))
    receive(switch.hosts[0])
    [read] = controller.read(names.counter("both", 2))
    assert read.counter_entry.data.packet_count == -LARGEST - 1
    assert read.counter_entry.data.byte_count == -LARGEST - 1 + 11
    controller.modify(read)
    assert controller.read(names.counter("both", 2)) == [read]


def test_so_does_the_count_of_an_entry(router, switch):
    counter = p4rt.Entity()
    counter.direct_counter_entry.table_entry.CopyFrom(route(0x0A000000, 8).table_entry)
    router.insert(route(0x0A000000, 8))
    counter.direct_counter_entry.data.packet_count = LARGEST
    router.modify(counter)
    switch.hosts[0].send(bytes(Ether() / IP(dst="10.0.0.1", ttl=9)))
    receive(switch.hosts[0])
    [read] = router.read(counter)
    assert read.direct_counter_entry.data.packet_count == -LARGEST - 1
    asked = ROUTES.entry("routes")
    asked.table_entry.counter_data.SetInParent()
    [entry] = router.read(asked)
    assert entry.table_entry.counter_data == read.direct_counter_entry.data
