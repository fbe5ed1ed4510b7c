"""Random numbers for entries and packets, from one small pool, so that many packets match an entry."""

import random
from collections.abc import Iterator
from typing import Any

PORTS = (1, 2, 3, 4)
DROP_PORT = 511

_PORT_BITS = 9
Json = dict[str, Any]


class Values:
    """Numbers of any width: a few of each width, and those that the program itself mentions."""

    def __init__(self, chance: random.Random, constants: set[int]) -> None:
        self._chance = chance
        self._constants = sorted(constants)
        self._hot: dict[int, list[int]] = {}

    def draw(self, bits: int) -> int:
        """Return a number of this width, usually one of those that are drawn repeatedly."""
        if self._chance.random() < 0.1:
            return self._chance.getrandbits(bits)
        return self._chance.choice(self.hot(bits))

    def hot(self, bits: int) -> list[int]:
        """Return the numbers of this width that are drawn repeatedly."""
        if bits not in self._hot:
            self._hot[bits] = self._choose(bits)
        return self._hot[bits]

    def _choose(self, bits: int) -> list[int]:
        full, top = (1 << bits) - 1, 1 << bits - 1
        if bits == _PORT_BITS:
            return [*PORTS, *PORTS, DROP_PORT]
        edges = [0, 1, 2, 3, full, full - 1, top, top - 1]
        mentioned = [each for each in self._constants if bits // 2 < each.bit_length() <= bits]
        chosen = self._chance.sample(edges, 2)
        chosen += self._chance.sample(mentioned, min(3, len(mentioned)))
        chosen.append(self._chance.getrandbits(bits))
        return sorted({each & full for each in chosen})


def constants(node: Any) -> Iterator[int]:
    """Yield all numbers that a compiled program mentions."""
    if isinstance(node, dict):
        if node.get("type") == "hexstr":
            yield abs(int(node["value"], 16))
        if isinstance(node.get("key"), str) and "match_type" in node:
            yield int(node["key"], 16)
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from constants(each)
