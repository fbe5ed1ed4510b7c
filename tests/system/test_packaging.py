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
from wheels import NOT_SOURCE, Built, fresh_environment, pip, succeed, sum_in_a_rack


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
    said = sum_in_a_rack(installed, tmp_path)
    assert said.lines[0] == said.lines[1]
    _, innet, *extremes = said.lines[0].split()
    assert extremes == ["2.0", "2.0"]
    assert Path(innet).is_relative_to(installed.parent)
    assert said.errors.count("numpy makes the packets") == 1
    assert "no C compiler found: install gcc or clang" in said.errors


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
        ("servers/pbox/runtime", "from innet.servers.pbox import native; native.library()"),
        ("switch/runtime", "from innet.switch import build; build.compile_program(b'', str)"),
        ("p4/compiled/innet-64.json", "from innet.p4.artifacts import artifact; artifact(64)"),
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
