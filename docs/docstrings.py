"""Docstrings as Markdown: an extension of griffe, which reads them for the API reference.

Python's tools write a cross-reference as a role, such as ``:func:`join```, and a code block after two
colons. On the site a role becomes a link to the name's reference.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|data|func|meth|mod):`~?([\w.]+)`")
SECOND_COLON = re.compile(r"^::$|(?<=:):$", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Markdown in place of reStructuredText, in every docstring of a package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package that griffe has read."""
        for each in documented(pkg):
            text = SECOND_COLON.sub("", each.docstring.value)
            each.docstring.value = ROLE.sub(lambda role, each=each: link(each, role[1]), text)


def documented(scope: griffe.Object) -> Iterator[griffe.Object]:
    """Yield an object and those inside it that have docstrings."""
    if scope.docstring:
        yield scope
    for member in scope.members.values():
        if not member.is_alias:
            yield from documented(member)


def link(scope: griffe.Object, name: str) -> str:
    """Return a link to a name as a docstring means it, or code if the reference does not have it."""
    for path in (name, absolute(scope, name)):
        if shown(scope.modules_collection, path):
            return f"[`{name}`][{path}]"
    return f"`{name}`"


def absolute(scope: griffe.Object, name: str) -> str:
    """Return the full path of a name that is known where the docstring stands."""
    first, dot, rest = name.partition(".")
    with contextlib.suppress(griffe.NameResolutionError):
        return scope.resolve(first) + dot + rest
    return name


def shown(package: griffe.ModulesCollection, path: str) -> bool:
    """Return whether the reference has an entry for a path."""
    try:
        return "._" not in path and bool(package[path])
    except (KeyError, griffe.AliasResolutionError):
        return False
