"""`innet shell`: the unmodified p4runtime-shell on a switch that the controller knows."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from authorities import tls_options
from commands import BIN, run, serving
from paths import ROOT
from shells import shell_python
from switches import running_switch
from waiting import WITHIN

from innet.errors import InnetError
from innet.shell import environment

_COMMANDS = """
print("tables", len(list(tables)))
print("groups", len(list(multicast_group_entry().read())))
multicast_group_entry(77).insert()
"""
_NO_ANSWER = "Failed to establish session"


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_the_shell_reads_the_switch_and_cannot_change_it(
    folder: Path, tmp_path: Path, secured: bool
):
    shell_python()
    certificates = str(folder) if secured else ""
    options = tls_options(folder) if secured else []
    served = ["--tls", certificates] if secured else []
    with running_switch(1, *options) as switch, serving(*served) as (_, address):
        where = {"INNET_CONTROLLER": address, "IPYTHONDIR": str(tmp_path)}
        where |= {"INNET_TLS": certificates} if secured else {}
        added = run("innet", "switch", "add", "tor", switch.address, "--ports", "1", **where)
        assert added.returncode == 0, added.stderr
        said = ask_shell(**where)
        listed = run("innet", "switch", "list", **where).stdout
    assert "you only have read access" in said
    assert "tables 10" in said
    assert "groups 1" in said
    assert "only the primary controller may change this switch" in said
    assert " yes " in listed  # the controller still has the switch


def test_a_switch_that_the_controller_does_not_know_is_an_error():
    with serving() as (_, address):
        done = run("innet", "shell", "tor", "--controller", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: cannot find the switch: ")


def test_a_shell_beside_innet_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / environment.MODULE).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert environment.python() == [sys.executable]


def test_a_shell_that_cannot_be_installed_is_an_error_that_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, environment.MODULE, None)
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InnetError, match=r"(?s)cannot install p4runtime-shell.*No matching"):
        environment.python()
    assert list(tmp_path.iterdir()) == []


def test_the_extra_installs_the_same_release():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras["shell"] == [environment.SHELL]


def ask_shell(**where: str) -> str:
    """Give commands to the shell, and return its output. It waits only 2 s for the switch."""
    deadline = time.monotonic() + WITHIN
    while True:
        done = subprocess.run(
            [str(BIN / "innet"), "shell", "tor"], input=_COMMANDS, env={**os.environ, **where},
            capture_output=True, text=True, timeout=WITHIN, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        if _NO_ANSWER not in said:
            assert done.returncode == 0, said
            return said
        assert time.monotonic() < deadline, said
