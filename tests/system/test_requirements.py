"""What deployments install: every package is pinned with its hashes, and none is missing."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT
from wheels import NOT_SOURCE, fresh_environment, install_or_skip, pip, succeed

MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {
    name: extras.split() for name, extras in re.findall(r"(?m)^EXTRAS_(\w+) = (.+)$", MAKEFILE)
}
"""The extras of each file, as the Makefile has them."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def path(name: str) -> Path:
    return ROOT / f"requirements/{name}.txt"


def pins(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements of a file, each with its hashes."""
    text = re.sub(r"#.*", "", path(name).read_text()).replace("\\\n", " ")
    found = []
    for line in filter(str.strip, text.splitlines()):
        requirement, *hashes = line.split(" --hash=")
        found.append((Requirement(requirement.strip()), [each.strip() for each in hashes]))
    return found


def wanted(extras: list[str]) -> list[Requirement]:
    """Return what innet needs with some extras, and to be built."""
    known = PROJECT["project"]["optional-dependencies"]
    texts = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    requirements = [Requirement(each) for each in texts]
    while extras:
        found = [Requirement(each) for extra in extras for each in known[extra]]
        requirements += [each for each in found if each.name != "innet"]
        extras = [extra for each in found if each.name == "innet" for extra in each.extras]
    return requirements


def test_each_file_has_its_extras_in_the_makefile():
    assert {each.stem for each in (ROOT / "requirements").iterdir()} == {*EXTRAS}


@pytest.mark.parametrize("name", EXTRAS)
def test_every_package_has_one_version_and_its_hashes(name: str):
    for requirement, hashes in pins(name):
        [version] = requirement.specifier
        assert version.operator == "==", requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    assert "://" not in path(name).read_text()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", EXTRAS)
def test_the_versions_are_those_that_pyproject_allows(name: str, python: str):
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    pinned = {}
    for each, _ in pins(name):
        if not each.marker or Marker(str(each.marker)).evaluate(environment):
            assert pinned.setdefault(canonicalize_name(each.name), each) is each, each
    for each in wanted(EXTRAS[name]):
        [version] = pinned[canonicalize_name(each.name)].specifier
        assert version.version in each.specifier, f"{each}: run `make requirements`"


def test_no_two_files_have_different_versions_of_a_package():
    versions: dict[str, set[str]] = {}
    for name in EXTRAS:
        found: dict[str, list[str]] = {}
        for each, _ in pins(name):
            found.setdefault(each.name, []).append(f"{each.specifier} {each.marker or ''}")
        for package, lines in found.items():
            versions.setdefault(package, set()).add("; ".join(sorted(lines)))
    assert {package for package, each in versions.items() if len(each) > 1} == set()


def test_the_services_are_installed_from_their_file_and_from_nothing_else(tmp_path: Path):
    """As docs/deploy.md does it. With hashes, pip refuses every package that is not in the file."""
    python, source = fresh_environment(tmp_path / "environment"), tmp_path / "source"
    install_or_skip(python, "--require-hashes", "--requirement", str(path("services")))
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "innet", source / "innet", ignore=NOT_SOURCE)
    pip(python, "install", "--no-deps", "--no-build-isolation", "--no-index", str(source))
    pip(python, "check")
    for command in ("innet", "innet-switch"):
        succeed([str(python.with_name(command)), "--help"])
    succeed([str(python), "-c", "import innet.controller.metrics, innet.switch.metrics"])
