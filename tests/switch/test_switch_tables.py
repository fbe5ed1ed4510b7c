"""P4Runtime's table entries and default actions."""

import grpc
import pytest
from p4runtime_client import Names, group, update_errors
from tiny_programs import program

from innet.p4.artifacts import artifact
from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

ROUTER = program("router")
ROUTES = Names(ROUTER.p4info)
AGGREGATION = artifact(64)
STATIONS = Names(AGGREGATION.p4info)
Type = p4rt.Update


def route(value: int, length: int, port: int = 1) -> p4rt.Entity:
    match = {"destination": (value, length)}
    return ROUTES.entry("routes", match, "forward", next_hop=0x0200_0000_0001, port=port)


def rule(priority: int, action: str = "deny", **match) -> p4rt.Entity:
    return ROUTES.entry("rules", match, action, priority)


def station(mac: int, port: int = 1) -> p4rt.Entity:
    return STATIONS.entry("bridge", {"destination": mac}, "forward", port=port)


def update(kind: int, entity: p4rt.Entity) -> p4rt.Update:
    return p4rt.Update(type=kind, entity=entity)


# -- entries -------------------------------------------------------------------------------------


def test_entries_are_read_back_as_they_were_written(router):
    written = [route(0x0A000000, 8), route(0x0A010000, 16, port=2)]
    written.append(rule(5, source=(0x0A000001, 0xFF0000FF), protocol=17))
    router.insert(*written)
    assert router.read(ROUTES.entry("routes")) == written[:2]
    assert router.read(ROUTES.entry("routes", {"destination": (0x0A010000, 16)})) == [written[1]]
    everything = p4rt.Entity()
    everything.table_entry.SetInParent()
    changeable = [each for each in router.read(everything) if not each.table_entry.is_const]
    assert sorted(map(str, changeable)) == sorted(map(str, written))


def test_an_entry_is_inserted_once_modified_and_deleted(bridge):
    bridge.insert(station(0xAA, port=1))
    [(code, message)] = update_errors(bridge.insert, station(0xAA, port=2))
    assert code == code_pb2.ALREADY_EXISTS
    assert "bridge" in message
    bridge.modify(station(0xAA, port=3))
    assert bridge.read(STATIONS.entry("bridge")) == [station(0xAA, port=3)]
    bridge.delete(STATIONS.entry("bridge", {"destination": 0xAA}))
    assert bridge.read(STATIONS.entry("bridge")) == []
    missing = "IngressPipeline.bridge.bridge: there is no entry with this match"
    for call in (bridge.modify, bridge.delete):
        assert update_errors(call, station(0xAA)) == [(code_pb2.NOT_FOUND, missing)]


def test_of_a_batch_the_good_updates_are_carried_out_and_each_has_its_own_answer(bridge):
    bad, good = station(0xBB), station(0xCC)
    bad.table_entry.match[0].exact.value = b"\1" + bytes(6)
    unknown = p4rt.Entity()
    unknown.table_entry.table_id = 0x02FFFFFF
    answers = update_errors(bridge.insert, good, bad, unknown, station(0xDD))
    codes = [code for code, _ in answers]
    assert codes == [code_pb2.OK, code_pb2.OUT_OF_RANGE, code_pb2.NOT_FOUND, code_pb2.OK]
    assert answers[0][1] == ""
    assert "does not fit 48 bits" in answers[1][1]
    assert "no table with id 0x2ffffff" in answers[2][1]
    assert bridge.read(STATIONS.entry("bridge")) == [good, station(0xDD)]


def malformed() -> dict[str, tuple[p4rt.Entity, str]]:
    """Return invalid entries, and the expected message of the switch."""
    cases = {}

    def case(name: str, words: str, entity: p4rt.Entity) -> p4rt.TableEntry:
        cases[name] = (entity, words)
        return entity.table_entry

    case("no prefix", "the prefix length 0 is not from 1 to 32", route(0, 0))
    case("prefix too long", "the prefix length 33 is not from 1 to 32", route(0, 33))
    case("bits behind the prefix", "the value has bits outside", route(0x0A000001, 8))
    case("bits outside of the mask", "the value has bits outside", rule(1, source=(3, 1)))
    case("empty mask", "the mask is 0: leave the match out", rule(1, source=(0, 0)))
    case("no priority", "needs a priority above 0", rule(0, source=(1, 1)))
    case("needless priority", "takes no priority", route(1, 32)).priority = 1
    case("negative priority", "takes no priority", route(1, 32)).priority = -1
    case("no action", "has no action", rule(1, "", source=(1, 1)))
    case("another table's action", "there is no action with id", rule(1, "unreachable", protocol=1))
    entry = case("parameter missing", "parameters once: next_hop, port", route(1, 32))
    del entry.action.action.params[0]
    entry = case("parameter twice", "parameters once: next_hop, port", route(1, 32))
    entry.action.action.params.append(entry.action.action.params[0])
    case("parameter too wide", "port: 0x200 does not fit 9 bits", route(1, 32, port=512))
    entry = case("value empty", "the value is empty", route(1, 32))
    entry.match[0].lpm.value = b""
    entry = case("field twice", "a field is matched twice", rule(1, source=(1, 1)))
    entry.match.append(entry.match[0])
    entry = case("unknown field", "no match field has id 9", route(1, 32))
    entry.match.add(field_id=9).exact.value = b"\1"
    entry = case("wrong kind of match", "the match is exact, but the field needs lpm", route(1, 32))
    entry.match[0].exact.value = b"\1"
    return cases


@pytest.mark.parametrize("case", malformed())
def test_an_entry_that_makes_no_sense_is_refused_with_the_reason(router, case):
    entity, words = malformed()[case]
    [(code, message)] = update_errors(router.insert, entity)
    out_of_range = "does not fit" in words or "is empty" in words
    assert code == (code_pb2.OUT_OF_RANGE if out_of_range else code_pb2.INVALID_ARGUMENT)
    assert words in message
    assert router.read(ROUTES.entry("rules"), ROUTES.entry("routes")) == []


def test_an_exact_match_cannot_be_left_out(bridge):
    [(code, message)] = update_errors(
        bridge.insert, STATIONS.entry("bridge", {}, "forward", port=1)
    )
    assert code == code_pb2.INVALID_ARGUMENT
    assert "cannot be left out" in message


def test_an_update_needs_a_type(bridge):
    for entity in (station(1), group(1, (1, 1))):
        [(code, message)] = update_errors(bridge.write, update(Type.UNSPECIFIED, entity))
        assert (code, message) == (code_pb2.INVALID_ARGUMENT, "the update has no type")


def test_a_table_takes_as_many_entries_as_it_has_room_for(router):
    router.insert(*(rule(priority, protocol=1) for priority in range(1, 5)))
    [(code, message)] = update_errors(router.insert, rule(5, protocol=1))
    assert code == code_pb2.RESOURCE_EXHAUSTED
    assert "all 4 entries are in use" in message
    router.delete(rule(2, protocol=1))
    router.insert(rule(5, protocol=1))


def test_entries_of_the_program_are_not_to_be_changed(bridge):
    match = {"form": (1, 0xF), "age": (1, 0xF)}
    entry = STATIONS.entry("decision", match, "decision.reject", 1)
    for call in (bridge.insert, bridge.modify, bridge.delete):
        [(code, message)] = update_errors(call, entry)
        assert code == code_pb2.PERMISSION_DENIED
        assert "part of the program" in message


def test_what_the_switch_does_not_have_is_refused_by_name(bridge):
    extern, empty = p4rt.Entity(), p4rt.Entity()
    extern.extern_entry.extern_id = 1
    assert update_errors(bridge.insert, extern, empty) == [
        (code_pb2.UNIMPLEMENTED, "extern_entry cannot be written here"),
        (code_pb2.INVALID_ARGUMENT, "the update has no entity"),
    ]
    with pytest.raises(grpc.RpcError, match="extern_entry cannot be read here"):
        bridge.read(extern)


# -- default actions -----------------------------------------------------------------------------


def test_a_default_action_is_modified_and_reset(router):
    assert router.read(ROUTES.default("rules")) == [ROUTES.default("rules", "permit")]
    router.modify(ROUTES.default("rules", "deny"))
    assert router.read(ROUTES.default("rules")) == [ROUTES.default("rules", "deny")]
    router.modify(ROUTES.default("rules"))
    assert router.read(ROUTES.default("rules")) == [ROUTES.default("rules", "permit")]


def test_a_default_action_is_neither_inserted_nor_deleted_nor_changed_if_constant(router):
    for call in (router.insert, router.delete):
        [(code, message)] = update_errors(call, ROUTES.default("rules", "deny"))
        assert (code, "can only be modified" in message) == (code_pb2.INVALID_ARGUMENT, True)
    [(code, message)] = update_errors(router.modify, ROUTES.default("routes", "unreachable"))
    assert (code, "is constant" in message) == (code_pb2.PERMISSION_DENIED, True)
    ranked = ROUTES.default("rules", "deny")
    ranked.table_entry.priority = 1
    assert update_errors(router.modify, ranked)[0][0] == code_pb2.INVALID_ARGUMENT
