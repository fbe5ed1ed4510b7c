"""The parser that p4c-barefoot made of a program: states, and their matches, extracts and constants.

This model executes the transitions, and the extraction into containers. The deparser of Tofino 2
copies some fields directly from the packet (CLOTs). The caller handles those.
"""

import re
from dataclasses import dataclass, field

from tofino_assembly import pattern_bits

Load = tuple[str, int, int]
"""A target, and its first byte and the one after its last, counted from the parser's position."""


class TooShortError(Exception):
    """A frame ends within the bytes that a state reads. Tofino's parser drops it."""


@dataclass
class Transition:
    """A state's actions if its registers match the pattern.

    `checked` holds the first byte of a header and the one after its last, and the container and bit
    of the header's checksum error.
    """

    pattern: str
    next: str = "end"
    shift: int = 0
    extracts: list[Load] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    constants: list[tuple[str, int]] = field(default_factory=list)
    checked: tuple[int, int, str, int] | None = None


class Parser:
    """The parser of one direction."""

    def __init__(self, assembly: str, gress: str) -> None:
        [text] = re.findall(rf"^parser {gress}:\n((?: .*\n)+)", assembly, re.MULTILINE)
        text = re.sub(r" *#.*", "", text)
        self._start = re.search(r"^  start: (\S+)", text, re.MULTILINE)[1]
        self._or = set(_words(re.search(r"^  bitwise_or: \[(.*)\]", text, re.MULTILINE)[1]))
        self._states: dict[str, tuple[list[str], list[Transition]]] = {}
        for name, body in re.findall(r"^    (\S+):\n((?:      .*\n|\n)*)", text, re.MULTILINE):
            matched = re.search(r"^      match: \[(.*)\]", body, re.MULTILINE)
            parts = re.split(r"^      (\*|0[xb][\da-f*]+):\n", body, flags=re.MULTILINE)[1:]
            rows = [_transition(*each) for each in zip(*[iter(parts)] * 2, strict=True)]
            self._states[name] = _words(matched[1]) if matched else [], rows

    def run(self, packet: bytes) -> tuple[dict[str, int], int]:
        """Return the header vector, by container, and the number of parsed bytes."""
        phv: dict[str, int] = {}
        registers: dict[str, bytes] = {}
        at, state = 0, self._start
        while state != "end":
            names, rows = self._states[state]
            bits = b"".join(registers[each] for each in names)
            taken = next(each for each in rows if _fits(bits, each.pattern))

            def read(first: int, behind: int, at: int = at) -> bytes:
                if at + behind > len(packet):
                    raise TooShortError
                return packet[at + first : at + behind]

            for container, first, behind in taken.extracts:
                self._write(phv, container, int.from_bytes(read(first, behind), "big"))
            for container, value in taken.constants:
                self._write(phv, container, value)
            if taken.checked:
                first, behind, container, bit = taken.checked
                phv[container] = phv.get(container, 0) | _wrong(read(first, behind)) << bit
            registers |= {each: read(*where) for each, *where in taken.loads}
            read(0, taken.shift)
            at, state = at + taken.shift, taken.next
        return phv, at

    def _write(self, phv: dict[str, int], container: str, value: int) -> None:
        phv[container] = value | (phv.get(container, 0) if container in self._or else 0)


def _transition(pattern: str, body: str) -> Transition:
    made = Transition(pattern)
    for line in body.splitlines():
        if put := re.match(r"        (\d+)(?:\.\.(\d+))?: ([TMD]?[WHB]\d+)$", line):
            made.extracts.append((put[3], int(put[1]), int(put[2] or put[1]) + 1))
        elif put := re.match(r"        ([TMD]?[WHB]\d+): (\d+)$", line):
            made.constants.append((put[1], int(put[2])))
        elif put := re.match(r"        load: \{(.*)\}", line):
            for name, first, last in re.findall(r"(\w+) : (\d+)(?:\.\.(\d+))?", put[1]):
                made.loads.append((name, int(first), int(last or first) + 1))
        elif told := re.match(r"        (shift|next): (\S+)$", line):
            setattr(made, told[1], int(told[2]) if told[1] == "shift" else told[2])
    if "type: VERIFY" in body:
        parts = re.search(r"mask: \[(.*)\]", body)[1]
        covered = [int(each) for each in re.findall(r"\d+", parts)]
        into = re.search(r"dest: (\w+)\((\d+)\)", body)
        made.checked = min(covered), max(covered) + 1, into[1], int(into[2])
    return made


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _fits(registers: bytes, pattern: str) -> bool:
    """Return whether registers match a pattern. Its digit ``*`` matches anything."""
    if pattern == "*":
        return True
    value, mask, width = pattern_bits(pattern)
    assert width == 8 * len(registers), pattern
    return not (int.from_bytes(registers, "big") ^ value) & mask


def _wrong(header: bytes) -> bool:
    """Return whether the Internet checksum over a header is wrong."""
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total != 0xFFFF
