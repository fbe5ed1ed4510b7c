"""An expected error ends a benchmark with one line and an exit status, not with a traceback."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

import pytest
from paths import ROOT

LACKING = ("sklearn", "torch", "yaml")


@pytest.mark.parametrize(
    "name", ["collectives", "quantizers", "rack", "papers.weak_scaling", "papers.worker"]
)
def test_all_missing_packages_are_named_at_once(name: str, tmp_path: Path):
    link_packages(tmp_path, LACKING)
    # Without `site` Python looks for packages in PYTHONPATH only.
    error = _refused("-S", "-m", f"benchmarks.{name}", PYTHONPATH=str(tmp_path))
    assert error == (
        f"the benchmarks need packages that are not installed ({', '.join(LACKING)}): "
        "pip install '.[emulate,experiments]'"
    )


def test_without_selenium_the_web_pages_benchmark_has_help_and_names_the_package(tmp_path: Path):
    link_packages(tmp_path, ("selenium",))
    benchmark = ("-S", "-m", "benchmarks.web")
    helped = _run(*benchmark, "--help", PYTHONPATH=str(tmp_path))
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--screenshot" in helped.stdout
    assert _refused(*benchmark, PYTHONPATH=str(tmp_path)) == (
        "this benchmark needs selenium, which is not installed: pip install selenium"
    )


def link_packages(folder: Path, lacking: Collection[str]) -> None:
    """Make links to all installed packages but some."""
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if package.stem not in lacking:
            (folder / package.name).symlink_to(package)


def test_wrong_input_is_told_in_a_line():
    assert _refused("-m", "benchmarks.rack", "--only", "none").startswith("no part none: ")


def test_what_the_machine_lacks_is_told_in_a_line():
    assert "an emulation needs " in _refused("-m", "benchmarks.hierarchy", "--quick", PATH="")


def test_any_other_error_has_its_traceback():
    done = _run("-c", "import sys; sys.argv[0] = '-m'; import benchmarks; 1 / 0")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def _refused(*arguments: str, code: int = 2, **environment: str) -> str:
    done = _run(*arguments, **environment)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
