"""Consoles that print text literally, whatever its source.

Names, reasons and addresses come from other machines. Text that looks like rich's markup stays text, and
control characters become visible escapes. Styles come only from :class:`rich.text.Text` and from the
argument ``style``.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, RenderableType  # noqa: TID251 - here it is made safe
from rich.status import Status
from rich.text import Text

_PIPE_WIDTH = 1000
_KEPT = "\n\t"


class PlainConsole(Console):
    """A console that shows every string literally, also in the cells of tables.

    The arguments are those of :class:`rich.console.Console`, except for markup and emoji.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as text. Rich calls this for every string that it shows."""
        return super().render_str(printable(text), **options)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Return a status line for a terminal. Rich would take a string for markup."""
        shown = self.render_str(status) if isinstance(status, str) else status
        return super().status(shown, **options)


def printable(text: str) -> str:
    r"""Return a text with control characters as escapes such as ``\x1b``; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _KEPT else _escape(each) for each in text)


def one_line(text: str) -> str:
    r"""Return a text as one line: all control characters become escapes, also line ends and tabs.

    Text from other machines passes through here before it gets into a log or an error. A line of its own
    could pass for somebody else's.
    """
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def console(*, stderr: bool = False, **options: Any) -> PlainConsole:
    """Return a console for standard output or standard error.

    For a pipe it is very wide, so that no value is broken over lines.
    """
    file = sys.stderr if stderr else sys.stdout
    width = None if file and file.isatty() else _PIPE_WIDTH  # a closed one is None
    return PlainConsole(stderr=stderr, width=width, **options)


def say(text: str = "") -> None:
    """Write a line to standard output at once, without any layout."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def say_json(value: object) -> None:
    """Write a value as one line of JSON to standard output at once.

    Characters outside ASCII are escaped, so text from other machines cannot control the terminal.
    """
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def drop_output(file: TextIO) -> None:
    """Drop what standard output or error does not take. Else the interpreter tries again at its end."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
