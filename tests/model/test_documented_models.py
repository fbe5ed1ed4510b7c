"""The outputs of ``innet model`` on pages are those that the commands print."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet.model.cli import app

DOCS = Path(__file__).parents[2] / "docs"


def output_after(page: str, command: str) -> str:
    """Return the first block of a page that is no code, after a command."""
    text = (DOCS / page).read_text()
    begin = text.index(command)
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return next(each[2] for each in fences if each.start() > begin and not each[1])


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("models.md", "capacity --link 100G --latency 1us"),
        ("models.md", "collectives --workers 8 --model-size 16.8M --link 100M"),
        ("sizing.md", "capacity --link 10G --round-trip 200us"),
    ],
)
def test_a_page_shows_what_the_command_prints(page: str, command: str):
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    printed = re.sub(r"[^\w\s.,;/()-]", " ", done.stdout)
    assert output_after(page, f"innet model {command}").split() == printed.split()
