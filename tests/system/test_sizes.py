"""Modules and classes stay short enough to be read in one go: CONTRIBUTING.md has the limits."""

import ast

import pytest
from paths import ROOT

MOST_LINES, MOST_LINES_OF_CLASS = 400, 250
MODULES = sorted(
    each
    for folder in ("innet", "benchmarks", "examples", "topologies")
    for each in (ROOT / folder).rglob("*.py")
    if not each.stem.endswith(("_pb2", "_pb2_grpc"))
)


@pytest.mark.parametrize(
    "folder",
    sorted({each.parent for each in MODULES}),
    ids=lambda each: str(each.relative_to(ROOT)),
)
def test_modules_and_classes_are_short(folder):
    found = []
    for module in (each for each in MODULES if each.parent == folder):
        text = module.read_text()
        if (lines := len(text.splitlines())) > MOST_LINES:
            found.append(f"{module.name}: {lines} lines")
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.ClassDef):
                lines = each.end_lineno - each.lineno + 1
                if lines > MOST_LINES_OF_CLASS:
                    found.append(f"{module.name}: {lines} lines in {each.name}")
    assert not found
