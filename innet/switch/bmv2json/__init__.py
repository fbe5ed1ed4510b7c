"""A reader that turns p4c's BMv2 JSON into the intermediate form, and refuses programs that cannot run.

`document` reads the parts of the JSON with the types that they must have. The other modules follow
the intermediate form: `packet`, `expressions`, `externs`, `actions`, `parser`, `controls` and
`entries`. Each checks that the names in its part belong to something in the program.
"""

import contextlib
import functools
import gc
from collections.abc import Iterator

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json.actions import Actions
from innet.switch.bmv2json.controls import Controls
from innet.switch.bmv2json.document import JsonObject, malformed, parse, unique
from innet.switch.bmv2json.externs import Externs
from innet.switch.bmv2json.packet import Packet
from innet.switch.bmv2json.parser import Parser


@functools.lru_cache(maxsize=4)
def load(text: str | bytes) -> ir.Program:
    """Read a BMv2 JSON document. Raises UnsupportedProgram, which names the problem and its place.

    This takes long, and a switch often gets a program that it knows.
    """
    with _without_collector():
        return _load(parse(text))


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python's garbage collector from searching a large document again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(document: JsonObject) -> ir.Program:
    for each in document.nodes("extern_instances"):
        raise UnsupportedProgram(
            f"extern instances are not supported: {each.optional_text('name')} of type "
            f"{each.optional_text('type')}"
        )
    packet = Packet(document)
    externs = Externs(document, packet)
    reader = Actions(packet, externs)
    actions = tuple(map(reader.read, document.nodes("actions")))
    unique(((each.id, None) for each in actions), "actions with the id")
    parser = Parser(document, packet, reader)
    controls = Controls(document, packet, externs, actions)
    program = ir.Program(
        headers=tuple(packet.headers.values()),
        errors=_errors(document),
        stacks=tuple(packet.stacks.values()),
        unions=tuple(packet.unions.values()),
        union_stacks=tuple(packet.union_stacks.values()),
        value_sets=tuple(parser.value_sets.values()),
        parser_start=parser.start,
        states=parser.states,
        deparser=_deparser(document, packet),
        actions=actions,
        ingress=controls.ingress,
        egress=controls.egress,
        registers=tuple(externs.registers.values()),
        counters=tuple(externs.counters.values()),
        checksums=externs.checksums,
        meters=tuple(externs.meters.values()),
        profiles=tuple(externs.profiles.values()),
        calculations=externs.calculations,
        field_lists=externs.field_lists,
        learn_lists=externs.learn_lists,
    )
    limits.check(program)
    return program


def _errors(document: JsonObject) -> dict[str, int]:
    pairs = []
    for row in document.items("errors"):
        match row:
            case [name, code]:
                name = document.as_text("errors", name)
                pairs.append((name, limits.number(f"error {name}: its code", code, limits.MAX_ID)))
            case _:
                raise document.error(f"{limits.shown(row)} does not declare an error")
    unique(((code, None) for _, code in pairs), "errors with the code")
    return unique(pairs, "errors with the name")


def _deparser(document: JsonObject, packet: Packet) -> tuple[str, ...]:
    deparsers = document.nodes("deparsers")
    if not deparsers:
        raise malformed("there is no deparser")
    names = [packet.header(deparsers[0], name) for name in deparsers[0].items("order")]
    for name in names:
        if packet.headers[name].metadata:
            raise UnsupportedProgram(f"{name} is metadata, which is in no packet")
    return tuple(names)
