"""YAML documents with bounds: a small file takes little time and memory to read.

Aliases are refused, so a document is a tree that is no larger than its text.
"""

from pathlib import Path
from typing import Any

import yaml

from innet.errors import UsageError

MAX_BYTES = 1 << 16
MAX_DEPTH = 16
_TOO_LARGE = 1 << 64
_MAX_VALUE_CHARACTERS, _MAX_REASON_CHARACTERS = 60, 200


class _Bounded(yaml.SafeLoader):
    """A loader that refuses aliases, tags, repeated keys, and nesting deeper than `MAX_DEPTH`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal("aliases are not allowed: write the value out", event.start_mark)
        if event.tag is not None:
            raise _refusal("tags are not allowed: remove it", event.start_mark)
        if self._depth == MAX_DEPTH:
            raise _refusal(f"nested too deeply: at most {MAX_DEPTH} levels", event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:  # YAML would keep the last and drop the others
                    raise _refusal(f"{quoted(key.value)} is there twice: keep one", key.start_mark)
                seen.add((key.tag, key.value))
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            _check(value)
        except (ValueError, OverflowError):  # such as 5000 digits, or the 99th of May
            raise _refusal(f"{quoted(node.value)} is not a valid value", node.start_mark) from None
        return value


def read(path: Path) -> str:
    """Read a file's text. Raises UsageError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        _check_size(len(content), str(path))
        return content.decode()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {why}") from None


def parse(text: str, source: str) -> tuple[Any, yaml.Node | None]:
    """Return a document's content, and its tree, which knows the lines.

    Raises UsageError. `source` is the name of the file in messages.
    """
    _check_size(len(text.encode(errors="replace")), source)
    try:
        loader = _Bounded(text)
        try:
            tree = loader.get_single_node()
            return (None if tree is None else loader.construct_document(tree)), tree
        except (ValueError, OverflowError):  # an escape for a character that does not exist
            raise _refusal("it is not YAML", loader.get_mark()) from None
        finally:
            loader.dispose()
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        why = getattr(problem, "problem", None) or "it is not YAML"
        raise UsageError(f"{source}{line}: {why[:_MAX_REASON_CHARACTERS]}") from None


def quoted(value: object) -> str:
    """Return a value for a message: one short printable line."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}..."


def _check_size(size: int, source: str) -> None:
    """Raise UsageError if a document of so many bytes is too large."""
    if size > MAX_BYTES:
        raise UsageError(f"{source}: the file is too large: it may have {MAX_BYTES} bytes at most")


def _check(value: object) -> None:
    """Raise OverflowError for too large an integer, and ValueError for text that UTF-8 cannot encode."""
    match value:
        case int() if abs(value) >= _TOO_LARGE:
            raise OverflowError
        case str():
            value.encode()  # half of a surrogate pair is no text


def _refusal(why: str, mark: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=why, problem_mark=mark)
