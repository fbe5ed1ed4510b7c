"""A BMv2 JSON document whose parts are read with the types that the format gives them.

A part of another type, or one that is missing, is an error of the document. The message has its place,
as in ``actions[3].primitives[0].op``.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from innet.errors import UnsupportedProgram
from innet.switch import limits

MAX_DEPTH = 300
"""The most levels of nested objects and lists. An operator of an expression takes two levels."""

_WANTED = ("header_types", "headers", "parsers", "deparsers", "actions", "pipelines")
_TOO_DEEP = f"more than {MAX_DEPTH} objects and lists are nested in each other"

Key = TypeVar("Key", int, str)
Value = TypeVar("Value")


class JsonObject:
    """One object of a document. All methods raise UnsupportedProgram if the document is malformed."""

    __slots__ = ("_content", "_index", "_key", "_parent")

    def __init__(
        self,
        content: dict[str, Any],
        parent: "JsonObject | None" = None,
        key: str = "",
        index: int | None = None,
    ) -> None:
        self._content, self._parent, self._key, self._index = content, parent, key, index

    def __repr__(self) -> str:
        return repr(self._content)

    def has(self, key: str) -> bool:
        """Return whether there is such a part, and it is not null."""
        return self._content.get(key) is not None

    def contains(self, key: str) -> bool:
        """Return whether there is such a part, which may be null."""
        return key in self._content

    def get(self, key: str) -> Any:
        """Return a part as it is, or None. An object is a JsonObject, also as an element of a list."""
        value = self._content.get(key)
        if isinstance(value, list):
            return [
                JsonObject(each, self, key, i) if isinstance(each, dict) else each
                for i, each in enumerate(value)
            ]
        return JsonObject(value, self, key) if isinstance(value, dict) else value

    def text(self, key: str) -> str:
        """Return a string."""
        return self.as_text(key, self._content.get(key))

    def as_text(self, key: str, value: object) -> str:
        """Return a value of this part, which has to be a string."""
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        if not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
            raise self._wrong(key, "Unicode text")
        return value

    def optional_text(self, key: str) -> str | None:
        """Return a string, or None if it is null or missing."""
        return self.text(key) if self.has(key) else None

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        return [self.as_text(key, each) for each in self.items(key)]

    def number(self, key: str, maximum: int, *, minimum: int = 0, name: str = "") -> int:
        """Return a whole number from `minimum` to `maximum`. Messages call it `name`."""
        name = name or self.place(key)
        return limits.number(name, self._present(key, name), maximum, minimum)

    def numbers(self, key: str, maximum: int) -> list[int]:
        """Return a list of whole numbers from 0 to `maximum`."""
        return [limits.number(self.place(key), each, maximum) for each in self.items(key)]

    def width(self, key: str, name: str) -> int:
        """Return the width in bits of something that messages call `name`."""
        return limits.width(name, self._present(key, f"{name}: the width in bits"))

    def optional_number(self, key: str, maximum: int) -> int:
        """Return a whole number from 0 to `maximum`, or 0 if it is null or missing."""
        return self.number(key, maximum) if self.has(key) else 0

    def hexadecimal(self, key: str) -> int:
        """Return a number that is written as a hexadecimal string. It may be negative."""
        return self.as_hexadecimal(key, self.text(key))

    def as_hexadecimal(self, key: str, text: str) -> int:
        """Return the number in a hexadecimal string, which is in this part."""
        try:
            return int(text, 16)
        except ValueError:
            raise self._wrong(key, "a hexadecimal number") from None

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a truth value, or `default` if it is null or missing."""
        value = self._content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """Return a list, with a JsonObject for each object in it. Without one, the list is empty."""
        if self.has(key) and not isinstance(self._content[key], list):
            raise self._wrong(key, "a list")
        found: list[Any] = self.get(key) or []
        return found

    def nodes(self, key: str) -> "list[JsonObject]":
        """Return a list of objects. Without one, the list is empty."""
        nodes = self.items(key)
        if not all(isinstance(each, JsonObject) for each in nodes):
            raise self._wrong(key, "a list of objects")
        return nodes

    def node(self, key: str) -> "JsonObject":
        """Return an object."""
        node = self.get(key)
        if not isinstance(node, JsonObject):
            raise self._wrong(key, "an object")
        return node

    def known(self, key: str, things: Mapping[str, Value], kind: str) -> Value:
        """Return the one of `things` that this part names."""
        return self.look_up(self.text(key), things, kind)

    def look_up(self, name: object, things: Mapping[str, Value], kind: str) -> Value:
        """Return the one of `things` with this name."""
        if not isinstance(name, str) or name not in things:
            raise self.error(f"there is no {kind} {limits.shown(name)}")
        return things[name]

    def place(self, key: str = "") -> str:
        """Return the place of this object in the document, or of one of its parts."""
        steps, node = [key], self
        while node._parent:
            steps.append(node._key if node._index is None else f"{node._key}[{node._index}]")
            node = node._parent
        return ".".join(each for each in reversed(steps) if each)

    def error(self, problem: str) -> UnsupportedProgram:
        """Return an error of this object."""
        return malformed(f"{self.place()}: {problem}")

    def _present(self, key: str, name: str) -> Any:
        if key not in self._content:
            raise malformed(f"{name} is missing")
        return self._content[key]

    def _wrong(self, key: str, wanted: str) -> UnsupportedProgram:
        if key not in self._content:
            return malformed(f"{self.place(key)} is missing")
        return malformed(f"{self.place(key)} is {limits.shown(self._content[key])}, not {wanted}")


def parse(text: str | bytes) -> JsonObject:
    """Return the root of a BMv2 JSON document. Raises UnsupportedProgram."""
    try:
        content = json.loads(text, strict=False)  # p4c copies line breaks of the source
    except RecursionError:
        raise malformed(_TOO_DEEP) from None
    except ValueError as problem:
        raise UnsupportedProgram(f"not a BMv2 JSON: {problem}") from None
    if not isinstance(content, dict) or any(key not in content for key in _WANTED):
        raise UnsupportedProgram(
            f"not a BMv2 JSON: it lacks one of {', '.join(_WANTED)}; was it made by p4c-bm2-ss?"
        )
    _check_depth(content)
    return JsonObject(content)


def unique(pairs: Iterable[tuple[Key, Value]], what: str) -> dict[Key, Value]:
    """Return a dictionary of pairs. Raises UnsupportedProgram if two have the same key.

    `what` is the beginning of the message, as in "actions with the id".
    """
    found: dict[Key, Value] = {}
    for key, value in pairs:
        if key in found:
            raise malformed(f"there are two {what} {key!r}")
        found[key] = value
    return found


def malformed(problem: str) -> UnsupportedProgram:
    """Return the error for a document that p4c cannot have written."""
    return UnsupportedProgram(
        f"malformed BMv2 JSON: {problem}; compile the program again with p4c-bm2-ss"
    )


def _check_depth(content: dict[str, Any]) -> None:
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for node in level
            for part in (node.values() if isinstance(node, dict) else node)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise malformed(_TOO_DEEP)
