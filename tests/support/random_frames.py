"""Random frames for any program, made from its parser."""

import json
import random
from collections.abc import Iterator

from random_values import Json, Values

_MOST_STATES = 24
_LONGEST_REST = 60

Aim = dict[tuple[str, str], tuple[int, int]]
"""Values and masks of header fields that an entry matches."""


class _Bits:
    """A frame that is being built: a number, and the places of each header's fields in it."""

    def __init__(self) -> None:
        self.value = self.length = 0
        self.places: dict[tuple[str, str], tuple[int, int]] = {}
        self.forced: list[tuple[int, int, int, int]] = []

    def append(self, value: int, bits: int) -> None:
        self.value = self.value << bits | value
        self.length += bits

    def write(self, at: int, bits: int, value: int, mask: int) -> None:
        """Set the bits of a field that `mask` selects."""
        shift = self.length - at - bits
        if shift >= 0:
            self.value = self.value & ~(mask << shift) | (value & mask) << shift

    def read(self, at: int, bits: int) -> int:
        return self.value >> self.length - at - bits & (1 << bits) - 1


class Frames:
    """Frames that take a path through a program's parser, and frames that almost do."""

    def __init__(
        self,
        chance: random.Random,
        values: Values,
        document: Json,
        aims: list[Aim],
        *,
        whole: bool,
    ) -> None:
        self._chance, self._values, self._aims = chance, values, aims
        types = {each["name"]: each["fields"] for each in document["header_types"]}
        self._fields = {each["name"]: types[each["header_type"]] for each in document["headers"]}
        for each in document.get("header_stacks", []):
            self._fields[each["name"]] = types[each["header_type"]]
        unions = {each["name"]: each["headers"] for each in document.get("header_union_types", [])}
        for each in document.get("header_union_stacks", []):
            for member, kind in unions[each["union_type"]]:
                self._fields[f"{each['name']}.{member}"] = types[kind]
        parser = document["parsers"][0]
        self._start = parser["init_state"]
        self._states = {each["name"]: each for each in parser["parse_states"]}
        self._sums = [*_sums(document)]
        # If a program never checks which headers were parsed, BMv2 reads the missing ones from an
        # earlier packet.
        used = json.dumps([document["pipelines"], document["actions"]])
        self._whole = whole or not ('"parser_error"' in used or '"$valid$"' in used)

    def frame(self) -> bytes:
        """Return one frame. Most are good, and some are cut short, changed or random."""
        kind = 1.0 if self._whole else self._chance.random()
        if kind < 0.06:
            return self._chance.randbytes(self._chance.randint(1, 120))
        frame = bytearray(self._good())
        if kind < 0.18:
            del frame[self._chance.randint(1, len(frame)) :]
        elif kind < 0.3:
            for _ in range(self._chance.randint(1, 4)):
                at = self._chance.randrange(len(frame))
                frame[at] = self._chance.choice(
                    (0, 0xFF, frame[at] ^ 1, self._chance.getrandbits(8))
                )
        return bytes(frame)

    def _good(self) -> bytes:
        bits = _Bits()
        name = self._start
        for _ in range(_MOST_STATES):
            if name is None:
                break
            state = self._states[name]
            for operation in state["parser_ops"]:
                self._extract(bits, operation)
            name = self._follow(bits, state)
        self._finish(bits)
        rest = self._chance.randint(1, _LONGEST_REST) if self._chance.random() < 0.7 else 0
        return (
            bits.value.to_bytes(bits.length // 8, "big") + self._chance.randbytes(rest)
        ) or b"\0"

    def _extract(self, bits: _Bits, operation: Json) -> None:
        if operation["op"] == "advance":
            bits.append(0, 8 * self._chance.randint(0, 4))
        if not operation["op"].startswith("extract"):
            return
        target = operation["parameters"][0]["value"]
        header = ".".join(target) if isinstance(target, list) else target
        for name, width, *_ in self._fields.get(header, []):
            if width == "*":
                width = 32 * self._chance.randint(0, 4)  # noqa: PLW2901
            bits.places[header, name] = bits.length, width
            bits.append(self._values.draw(width) if width else 0, width)

    def _follow(self, bits: _Bits, state: Json) -> str | None:
        """Choose the next state, and set the keys accordingly."""
        ways = state["transitions"]
        chosen: Json = self._chance.choice(ways[:-1] * 3 + ways)
        if chosen["type"] == "hexstr":
            keys = state["transition_key"]
            sizes = [self._key_bits(key) for key in keys]
            shift = sum(-(-size // 8) * 8 for size in sizes)
            whole = (1 << shift) - 1
            value = int(chosen["value"], 16)
            mask = int(chosen["mask"], 16) if chosen["mask"] else whole
            for key, size in zip(keys, sizes, strict=True):
                shift -= -(-size // 8) * 8
                full = (1 << size) - 1
                wanted = size, value >> shift & full, mask >> shift & full
                if key["type"] == "lookahead":
                    bits.forced.append((bits.length + key["value"][0], *wanted))
                elif (place := bits.places.get(tuple(key["value"]))) and place[1] == size:
                    bits.write(place[0], *wanted)
        return chosen["next_state"]

    def _key_bits(self, key: Json) -> int:
        if key["type"] == "lookahead":
            return int(key["value"][1])
        header, name = key["value"]
        return next((width for each, width, *_ in self._fields.get(header, []) if each == name), 8)

    def _finish(self, bits: _Bits) -> None:
        end = max([bits.length, *(at + size for at, size, *_ in bits.forced)])
        end = -(-end // 8) * 8
        bits.append(0, end - bits.length)
        for aim in self._chance.sample(
            self._aims, min(len(self._aims), self._chance.randint(0, 3))
        ):
            for target, (value, mask) in aim.items():
                if target in bits.places:
                    at, size = bits.places[target]
                    full = (1 << size) - 1
                    bits.write(at, size, value & full, mask & full)
        for at, size, value, mask in bits.forced:
            bits.write(at, size, value, mask)
        for target, inputs in self._sums:
            if self._chance.random() < 0.85:
                _sum_up(bits, target, inputs)


def _sums(document: Json) -> Iterator[tuple[tuple[str, str], list[tuple[str, str]]]]:
    """Yield each verified checksum: its field, and the fields that it covers."""
    calculations = {each["name"]: each for each in document.get("calculations", [])}
    for each in document.get("checksums", []):
        calculation = calculations[each["calculation"]]
        if each.get("verify", True) and calculation["algo"] == "csum16":
            inputs = calculation["input"]
            if all(part["type"] == "field" for part in inputs):
                yield tuple(each["target"]), [tuple(part["value"]) for part in inputs]


def _sum_up(bits: _Bits, target: tuple[str, str], inputs: list[tuple[str, str]]) -> None:
    if target not in bits.places or any(each not in bits.places for each in inputs):
        return
    total = length = 0
    for at, size in (bits.places[each] for each in inputs):
        total, length = total << size | bits.read(at, size), length + size
    total <<= -length % 16
    whole = 0
    while total:
        whole, total = whole + (total & 0xFFFF), total >> 16
    while whole >> 16:
        whole = (whole & 0xFFFF) + (whole >> 16)
    bits.write(*bits.places[target], ~whole & 0xFFFF, 0xFFFF)
