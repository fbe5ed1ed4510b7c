"""Documents that are checked against a schema, with errors that name the line."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from innet.documents.bounded_yaml import parse as parse_yaml
from innet.documents.bounded_yaml import quoted
from innet.errors import UsageError

Model = TypeVar("Model", bound=BaseModel)
Explain = Callable[[Any], str | None]
_MAX_ERRORS, _MAX_STEP_CHARACTERS = 20, 20


def parse(
    model: type[Model], text: str, source: str, outline: str, explain: Explain = lambda _: None
) -> Model:
    """Return the model of a document's text. Raises UsageError, with the lines of the errors.

    Messages call the document `source`. `outline` says what it contains. `explain` may return a
    better message for one of pydantic's errors.
    """
    content, tree = parse_yaml(text, source)
    if not isinstance(content, dict):
        raise UsageError(f"{source}: {outline}")
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        raise UsageError(_explanation(source, tree, problem, explain)) from None


def _explanation(
    source: str, tree: yaml.Node | None, problem: ValidationError, explain: Explain
) -> str:
    errors: list[Any] = problem.errors()
    # A list whose only element is wrong counts as too short as well: one error is enough.
    telling = [error for error in errors if error["type"] != "too_short"] or errors
    lines = [_error_line(source, tree, error, explain) for error in telling[:_MAX_ERRORS]]
    more = len(telling) - len(lines)
    return "\n".join([*lines, *([f"{source}: and {more} more"] if more else [])])


def _error_line(source: str, tree: yaml.Node | None, error: Any, explain: Explain) -> str:
    where = error["loc"]
    steps = ".".join(map(_step, where))
    why = explain(error) or str(error["msg"]).removeprefix("Value error, ")
    return f"{source}:{_line(tree, where)}: {steps + ': ' if steps else ''}{why}"


def _step(step: object) -> str:
    text = str(step)
    plain = text.replace("_", "").isalnum() and len(text) <= _MAX_STEP_CHARACTERS
    return text if plain else quoted(text)


def _line(node: yaml.Node | None, where: Sequence[int | str]) -> int:
    """Return the line of the node at the path `where`, or of the closest existing one."""
    line = node.start_mark.line + 1 if node else 1
    for step in where:
        following: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    line, following = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            following = node.value[step]
            line = following.start_mark.line + 1
        if following is None:  # a step that pydantic adds, or a field that is missing
            continue
        node = following
    return line
