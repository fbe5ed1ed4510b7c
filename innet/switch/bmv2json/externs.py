"""The reader of v1model's objects: arrays of state, hashes, checksums, profiles, and lists of fields."""

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json.document import JsonObject, unique
from innet.switch.bmv2json.expressions import Expressions
from innet.switch.bmv2json.packet import Packet

_HASHES = frozenset(
    """crc16 crc32 crc8_custom crc16_custom crc32_custom crc64_custom crcCCITT csum16 cksum16 xor16
    xor32 identity xxh64 random""".split()
)
OLD_PROFILE = "act_prof_name"
"""The key of a table's own action profile in the first versions of the format."""

_MAX_LIST_ID = (1 << 16) - 1
_MAX_CHECKSUM_BITS = 64


class Externs:
    """The objects that a program declares, by name."""

    def __init__(self, document: JsonObject, packet: Packet) -> None:
        self._packet, self._expressions = packet, Expressions(packet)
        registers = [_register(each) for each in document.nodes("register_arrays")]
        self.registers = unique(
            ((each.name, each) for each in registers), "registers with the name"
        )
        counters = [_counter(each) for each in document.nodes("counter_arrays")]
        self.counters = unique(((each.name, each) for each in counters), "counters with the name")
        meters = [self._meter(each) for each in document.nodes("meter_arrays")]
        self.meters = unique(((each.name, each) for each in meters), "meters with the name")
        self.calculations = unique(
            (
                (each.text("name"), self._calculation(each))
                for each in document.nodes("calculations")
            ),
            "calculations with the name",
        )
        profiles = [
            self._profile(each)
            for pipeline in document.nodes("pipelines")
            for each in (
                *pipeline.nodes("action_profiles"),
                *(table for table in pipeline.nodes("tables") if _has_own_profile(table)),
            )
        ]
        self.profiles = unique(
            ((each.name, each) for each in profiles), "action profiles with the name"
        )
        self.checksums = tuple(self._checksum(each) for each in document.nodes("checksums"))
        self.field_lists = self._field_lists(document, "field_lists")
        self.learn_lists = self._field_lists(document, "learn_lists")

    def _meter(self, node: JsonObject) -> ir.Meter:
        name = node.text("name")
        if node.get("rate_count") != 2 or node.get("type") not in ("packets", "bytes"):
            raise UnsupportedProgram(
                f"meter {name}: only two rates, of packets or bytes, are supported"
            )
        by_bytes = node.get("type") == "bytes"
        if not node.flag("is_direct", default=False):
            return ir.Meter(name, _size(node, f"meter {name}"), by_bytes, None, None)
        target = self._expressions.field(node, "result_target")
        return ir.Meter(name, 0, by_bytes, node.text("binding"), target)

    def _calculation(self, node: JsonObject) -> ir.Calculation:
        algorithm = node.text("algo")
        if algorithm not in _HASHES:
            raise UnsupportedProgram(f"hash algorithm {algorithm!r} is not supported")
        inputs = [each for each in node.nodes("input") if each.get("type") != "payload"]
        with_payload = len(inputs) < len(node.nodes("input"))  # the payload is always hashed last
        return ir.Calculation(algorithm, tuple(map(self._hashed, inputs)), with_payload)

    def _hashed(self, node: JsonObject) -> tuple[ir.Expr, int] | ir.Name:
        match kind := node.get("type"):
            case "field":
                ref = self._expressions.field(node, "value")
                return ref, self._expressions.width(ref)
            case "hexstr":
                return ir.Const(node.hexadecimal("value")), node.width("bitwidth", "a hash's input")
            case "header":
                return ir.Name(
                    "header", self._packet.whole(self._packet.header(node, node.get("value")))
                )
        raise UnsupportedProgram(f"hash inputs of type {kind!r} are not supported")

    def _profile(self, node: JsonObject) -> ir.Profile:
        selector = self._calculation(node.node("selector")) if node.has("selector") else None
        name = node.optional_text(OLD_PROFILE) or node.text("name")
        return ir.Profile(name, selector)

    def _checksum(self, node: JsonObject) -> ir.Checksum:
        if node.get("type") == "ipv4":
            raise UnsupportedProgram(
                "checksums of type 'ipv4' are not supported: compile the program again with p4c-bm2-ss"
            )
        if node.get("type") != "generic":
            raise UnsupportedProgram(f"checksums of type {node.get('type')!r} are not supported")
        calculation = node.known("calculation", self.calculations, "calculation")
        if calculation.algorithm == "random":
            raise UnsupportedProgram("a checksum by 'random' is not supported")
        target = self._expressions.field(node, "target")
        kind = self._packet.field_type(target)
        if kind.varbit or kind.bits > _MAX_CHECKSUM_BITS or isinstance(target.header, ir.Element):
            raise UnsupportedProgram(
                f"a checksum in {kind.name}: it has to be a header's field of at most "
                f"{_MAX_CHECKSUM_BITS} bits"
            )
        condition = node.has("if_cond")
        return ir.Checksum(
            target=target,
            calculation=node.text("calculation"),
            condition=self._expressions.read(node.node("if_cond")) if condition else ir.Bool(True),
            verify=node.flag("verify", default=True),
            update=node.flag("update", default=True),
        )

    def _field_lists(self, document: JsonObject, key: str) -> tuple[ir.FieldList, ...]:
        lists = [self._field_list(each, key) for each in document.nodes(key)]
        return tuple(unique(((each.id, each) for each in lists), f"{key} with the id").values())

    def _field_list(self, node: JsonObject, key: str) -> ir.FieldList:
        name = node.text("name")
        elements = node.nodes("elements")
        if key == "field_lists":  # a copy of a packet keeps fields, and a constant is none
            elements = [each for each in elements if each.get("type") != "hexstr"]
        for each in elements:
            if each.get("type") != "field":
                raise UnsupportedProgram(
                    f"field list {name}: elements of type {each.get('type')!r} are not supported"
                )
        fields = (self._expressions.field(each, "value") for each in elements)
        return ir.FieldList(node.number("id", _MAX_LIST_ID), name, tuple(fields))


def _register(node: JsonObject) -> ir.Register:
    name = node.text("name")
    return ir.Register(name, node.width("bitwidth", name), _size(node, f"register {name}"))


def _counter(node: JsonObject) -> ir.Counter:
    name = node.text("name")
    if node.flag("is_direct", default=False):
        return ir.Counter(name, 0, node.text("binding"))
    return ir.Counter(name, _size(node, f"counter {name}"), None)


def _has_own_profile(table: JsonObject) -> bool:
    return table.has(OLD_PROFILE) and not table.has("action_profile")


def _size(node: JsonObject, name: str) -> int:
    return node.number("size", limits.MAX_ELEMENTS, name=f"{name}: its size")
