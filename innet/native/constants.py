"""A C header with constants of Python, so that no number is written down in both languages.

Each native module passes its constants to :func:`innet.native.compiler.compile_library`, which puts
the header next to the C files. These include it as ``constants.h``.
"""

import enum
import re
from collections.abc import Mapping, Sequence

HEADER = "constants.h"

Constants = Mapping[str, int | Sequence[int] | type[enum.Enum]]
"""Constants by their names in C.

- A number becomes a macro.
- A sequence of numbers becomes an array of ``uint64_t``.
- An enumeration becomes one in C. ``{"BAD": FrameError}`` with the member SIZE gives ``enum
  frame_error`` with the member ``BAD_SIZE``.
"""


def header(constants: Constants) -> bytes:
    """Return the C header that defines these constants, in their order."""
    definitions = [_definition(name, value) for name, value in constants.items()]
    return "\n".join(["#pragma once", "#include <stdint.h>", *definitions, ""]).encode()


def _definition(name: str, value: int | Sequence[int] | type[enum.Enum]) -> str:
    if isinstance(value, int):
        return f"#define {name} {_literal(value)}"
    if isinstance(value, type):
        tag = re.sub(r"\B(?=[A-Z])", "_", value.__name__).lower()
        members = (f"{name}_{each.name} = {_literal(each.value)}" for each in value)
        return f"enum {tag} {{ {', '.join(members)} }};"
    return f"static const uint64_t {name}[] = {{{', '.join(map(_literal, value))}}};"


def _literal(number: int) -> str:
    """Return a number in C: an ``int`` if it fits, and unsigned if it is larger."""
    return str(int(number)) if number < 1 << 31 else f"{number:#x}u"
