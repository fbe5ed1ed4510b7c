"""The script and the commands of docs/tutorial.md work, word for word."""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import BIN
from pages import ROOT, commands
from preforked import forked_programs
from waiting import until

PAGE = (ROOT / "docs/tutorial.md").read_text()
COMMANDS = commands("docs/tutorial.md")
WITHIN = 400.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the page's script. The commands on the PATH start soon."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{forked_programs()}:{BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "200")
    Path("train.py").write_text(block("python"))
    return tmp_path


def block(language: str) -> str:
    """Return the page's only block of a language."""
    [text] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def change_one_line() -> None:
    """Change the script as the page's diff says."""
    script = Path("train.py").read_text()
    for hunk in block("diff").split("\n\n"):
        lines = hunk.splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
        assert script.count(old) == 1
        script = script.replace(old, new)
    Path("train.py").write_text(script)


def losses(command: str, attempts: int = 1) -> list[float]:
    """Run a training of the page, and return its losses. A process that aborts is started again."""
    for _ in range(attempts):
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=WITHIN, check=False
        )
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"^step \d+: loss (.*)$", done.stdout, re.MULTILINE)]


class Shell:
    """The shell that the page opens in a rack."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def type(self, command: str) -> str:
        """Type a command, and return its output and its exit code when it has ended."""
        print(command, 'echo "exit code $?"', sep="\n", file=self._process.stdin, flush=True)
        said = ""
        for line in self._process.stdout:
            said += line
            if line.startswith("exit code "):
                return said
        raise AssertionError(said)


@contextlib.contextmanager
def shell(command: str) -> Iterator[Shell]:
    """Open the rack's shell. Wait until it and the rack have ended."""
    with subprocess.Popen(
        shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Shell(process)
        finally:
            process.communicate(COMMANDS["the rack: continue"] + COMMANDS["the rack: end"])


def test_two_changed_lines_take_the_script_to_the_switch(folder: Path):
    # PyTorch itself seldom aborts at the end of a script that used Gloo.
    over_gloo = losses(COMMANDS["this machine: gloo"], attempts=3)
    change_one_line()
    assert losses(COMMANDS["this machine: innet"]) == pytest.approx(over_gloo, abs=1e-3)
    assert over_gloo == sorted(over_gloo, reverse=True)
    assert len(over_gloo) == 3


def test_what_the_page_shows_of_a_training_can_be_seen(folder: Path):
    change_one_line()
    with shell(COMMANDS["this machine: rack"]) as rack:
        rack.type(COMMANDS["the rack: train"])
        until(lambda: Path("train.log").exists() and "loss" in Path("train.log").read_text())
        shown = r"demo │ tor +│ switch │ \d+ +│ 2 of 2"
        until(lambda: re.search(shown, rack.type(COMMANDS["the rack: top"])))
        until(lambda: re.search(r"completed │ \d{3,}", rack.type(COMMANDS["the rack: show"])))
        until(lambda: "no problem found\nexit code 0" in rack.type(COMMANDS["the rack: doctor"]))
        rack.type(COMMANDS["the rack: stop"])
        until(lambda: "problem worker 1 has sent no" in rack.type(COMMANDS["the rack: doctor"]))
        rack.type(COMMANDS["the rack: continue"])
        until(lambda: "no problem found" in rack.type(COMMANDS["the rack: doctor"]))
