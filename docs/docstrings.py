"""Docstrings as Markdown: an extension of griffe, which reads them for the API reference.

Python's tools write a cross-reference as a role, such as ``:func:`join```, and a code block after two
colons. On the site a role becomes a link to the name's reference.
"""

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|data|func|meth|mod):`~?([\w.]+)`")
SECOND_COLON = re.compile(r"^::$|(?<=:):$", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Markdown in place of reStructuredText, in every docstring of a package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package that griffe has read."""
        for scope, docstring in docstrings(pkg):
            text = SECOND_COLON.sub("", docstring.value)
            docstring.value = ROLE.sub(partial(link, scope), text)


def docstrings(scope: griffe.Object) -> Iterator[tuple[griffe.Object, griffe.Docstring]]:
    """Yield the docstrings of an object and of those inside it, behind their objects."""
    if scope.docstring:
        yield scope, scope.docstring
    for member in scope.members.values():
        if isinstance(member, griffe.Object):  # and no name that is imported
            yield from docstrings(member)


def link(scope: griffe.Object, role: re.Match[str]) -> str:
    """Return a link to a role's name as the docstring means it, or code if it has no reference."""
    name = role[1]
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
        return "._" not in path and package[path].has_docstrings
    except (KeyError, griffe.AliasResolutionError):
        return False
