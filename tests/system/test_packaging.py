"""`pip install`: sdist and wheel have every file of the source tree, and work without it."""

import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from paths import ROOT
from wheels import NOT_SOURCE, Built, fresh_environment, pip, plain_environment, succeed

_SUMS = """
import os, subprocess, sys
import numpy as np
import innet
from innet.host import fastpath

WITHOUT_COMPILER = "1"
if rank := os.environ.get("RANK"):
    assert (fastpath.compiled() is None) == (rank == WITHOUT_COMPILER), "the fast path of " + rank
    with innet.join() as agent:
        mean = agent.all_reduce(np.full(1000, 2 * int(rank) + 1, np.float32))
        print(innet.__file__, mean.min(), mean.max())
else:
    ranks = {"0": {}, WITHOUT_COMPILER: {"PATH": "", "CC": ""}}
    workers = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **more, "RANK": rank, "LOCAL_RANK": rank,
                 "INNET_CACHE_DIR": os.path.join(sys.argv[1], rank)},
        )
        for rank, more in ranks.items()
    ]
    sys.exit(max(worker.wait(250) for worker in workers))
"""


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield the folder ``bin`` of a fresh environment with the wheel installed.

    The packages that innet needs are those of the tests' environment, which a .pth file names.
    Python does not read the .pth files of a folder that it knows from such a file. An editable
    install of the checkout is one, so the only innet that can be imported is the wheel's.
    """
    python = fresh_environment(tmp_path_factory.mktemp("installed") / "environment")
    pip(python, "install", "--no-index", "--no-deps", str(built.wheel))
    [packages] = python.parent.parent.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_sdist_and_wheel_have_every_file_of_the_source_tree(built: Built):
    files = (file for file in (ROOT / "innet").rglob("*") if file.is_file())
    ignored = {"__pycache__"}
    source = {file.relative_to(ROOT).as_posix() for file in files if ignored.isdisjoint(file.parts)}
    with tarfile.open(built.sdist) as archive:
        top = built.sdist.name.removesuffix(".tar.gz") + "/"
        names = [each.name.removeprefix(top) for each in archive.getmembers() if each.isfile()]
    assert _of_innet(names) == source
    with zipfile.ZipFile(built.wheel) as archive:
        assert _of_innet(archive.namelist()) == source


def test_an_installed_wheel_sums_through_a_switch_with_and_without_a_compiler(
    installed: Path, tmp_path: Path
):
    script = tmp_path / "sums.py"
    script.write_text(_SUMS)
    done = subprocess.run(
        [
            str(installed / "innet"), "rack", "--workers", "2", "--lanes", "64", "--",
            str(installed / "python"), str(script), str(tmp_path),
        ],
        cwd=tmp_path, env=plain_environment(), capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [first, second] = done.stdout.splitlines()
    assert first == second
    assert first.endswith(" 2.0 2.0")
    assert done.stderr.count("numpy makes the packets") == 1
    assert "no C compiler found: install gcc or clang" in done.stderr
    assert Path(first.split()[0]).is_relative_to(installed.parent)


def test_the_commands_are_installed(installed: Path, tmp_path: Path):
    for command in ("innet", "innet-switch"):
        succeed([str(installed / command), "--help"], tmp_path)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        (
            "host/fastpath.h",
            "from innet.host import link; link.open_link('host', link.Address('', '127.0.0.1', 9), 64)",
        ),
        ("wire/batch.c", "from innet.wire import batch; batch.compiled()"),
        ("switch/runtime", "from innet.switch import build; build.compile_program(b'', str)"),
        ("p4/compiled/aggregate-64.json", "from innet.p4.artifacts import artifact; artifact(64)"),
    ],
)
def test_a_missing_file_is_an_error_of_the_installation(
    installed: Path, tmp_path: Path, name: str, use: str
):
    [innet] = installed.parent.glob("lib/python*/site-packages/innet")
    shutil.copytree(innet, tmp_path / "innet", ignore=NOT_SOURCE)
    missing = tmp_path / "innet" / name
    if missing.is_dir():
        shutil.rmtree(missing)
    else:
        missing.unlink()
    done = subprocess.run(
        [str(installed / "python"), "-c", use],
        cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"innet.errors.IncompleteInstallation: {missing}"), done.stderr
    assert error.endswith("install innet again")


def _of_innet(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("innet/")}
