"""The program ``control_plane``, and what its controllers write and read."""

import itertools

from p4runtime_client import Controller, Names, group, uint128
from tiny_programs import program
from waiting import WITHIN

from innet.p4runtime import p4runtime_pb2 as p4rt

PROGRAM = program("control_plane")
NAMES = Names(PROGRAM.p4info)
ROUTER = program("router")
ROUTES = Names(ROUTER.p4info)
Action = p4rt.SetForwardingPipelineConfigRequest
Batch = p4rt.WriteRequest
Type = p4rt.Update
ELECTIONS = itertools.count(1)


def entry(table: str, kind: int, action: str = "", **params: int) -> p4rt.Entity:
    return NAMES.entry(table, {"type": kind}, action, **params)


def update(kind: int, entity: p4rt.Entity) -> p4rt.Update:
    return p4rt.Update(type=kind, entity=entity)


def write(controller: Controller, atomicity: int, *updates: p4rt.Update, role: str = "") -> None:
    request = p4rt.WriteRequest(updates=updates, atomicity=atomicity, role=role)
    request.election_id.CopyFrom(uint128(controller.election))
    controller.stub.Write(request, timeout=WITHIN)


def state(controller: Controller) -> set[str]:
    """Return everything that can be read, except for counts of packets."""
    wanted = [p4rt.Entity(), NAMES.default("destinations"), group(0), register("wide")]
    wanted[0].table_entry.SetInParent()
    return set(map(str, controller.read(*wanted)))


def register(name: str, index: int | None = None, value: bytes | None = None) -> p4rt.Entity:
    layout = next(each for each in PROGRAM.p4info.registers if each.preamble.name.endswith(name))
    entity = p4rt.Entity()
    entity.register_entry.register_id = layout.preamble.id
    if index is not None:
        entity.register_entry.index.index = index
    if value is not None:
        entity.register_entry.data.bitstring = value
    return entity


def frame(kind: int, source: int = 0, destination: int = 0) -> bytes:
    return destination.to_bytes(6, "big") + source.to_bytes(6, "big") + kind.to_bytes(2, "big")
