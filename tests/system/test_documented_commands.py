"""The commands that the pages tell readers to type exist, with the options that they have there.

Other tests run many of them. This one asks the parsers, and runs none.
"""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from paths import ROOT

import innet.cli
import innet.switch.cli

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
APPS = {"innet": innet.cli.app, "innet-switch": innet.switch.cli.app}
IGNORED = {"&", "..."}


def typed() -> Iterator[list[str]]:
    """Yield the words of every command in the pages' blocks of shell code, without settings before."""
    for page in PAGES:
        for block in re.findall(
            r"^ *```sh\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE
        ):
            for line in block.replace("\\\n", "").splitlines():
                words = shlex.split(line, comments=True)
                while words and (words[0] in {"sudo", "export"} or re.match("[A-Z_]+=", words[0])):
                    words.pop(0)
                if words:
                    yield [
                        Path(words[0]).name,
                        *(each for each in words[1:] if each not in IGNORED),
                    ]


def starting(*programs: str) -> list[str]:
    return sorted({shlex.join(words) for words in typed() if words[0] in programs})


@pytest.mark.parametrize("line", starting(*APPS))
def test_a_command_of_innet_is_one_that_its_parser_takes(line: str):
    program, *rest = shlex.split(line)
    command = typer.main.get_command(APPS[program])
    context = command.make_context(program, rest)
    while hasattr(command, "resolve_command"):
        given = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, given)
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", starting("make"))
def test_a_target_of_make_is_one_of_the_makefile(line: str):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = [each for each in shlex.split(line)[1:] if "=" not in each]
    assert words
    assert targets.issuperset(words)


@pytest.mark.parametrize("line", [each for each in starting("python") if " -m benchmarks" in each])
def test_a_benchmark_is_a_module_that_declares_the_options(line: str):
    _, _, module, *options = shlex.split(line)
    declared = "\n".join(sources(module))
    for option in (each for each in options if each.startswith("--")):
        # An argument of argparse, or a parameter of a function that typer runs.
        name = option.removeprefix("--").replace("-", "_")
        assert re.search(rf'"{option}"|^    {name}: ', declared, re.MULTILINE), option


def sources(module: str) -> list[str]:
    """Return the source of a module of the benchmarks, and of those that it imports from."""
    spec = importlib.util.find_spec(module)
    assert spec
    assert spec.origin
    source = Path(spec.origin).read_text()
    others = re.findall(r"^from (benchmarks[\w.]*) import", source, re.MULTILINE)
    return [source, *(each for other in others for each in sources(other))]
