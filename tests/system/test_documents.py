"""The documents name things that exist: files, headings, identifiers, and the layers of the packages."""

import importlib
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

CODE = {".py", ".c", ".h", ".p4", ".proto", ".toml", ".json", ".yaml", ".yml"}
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
# Names with an underscore inside, or of several capitalized words, are hardly English.
IDENTIFIER = re.compile(r"(?:\w+\.)*(?:[a-z]\w*_\w+|(?:[A-Z][a-z]+){2,})(?:\(\))?")
ELSEWHERE = {
    "ExternEntry",  # of P4Runtime
    "GoogleNet",  # of a paper
    "all_to_all",  # of PyTorch
    "cell_00", "cell_01",  # made by a macro
    "p4_devport_mgr_pcie_cpu_port_get", "stratum_bfrt",  # of Stratum
    "exported_job",  # of Prometheus
    "rp_filter",  # of Linux
}  # fmt: skip


@cache
def ours() -> list[Path]:
    """Return the project's own files, and none of an environment or a cache."""
    folders = ("innet", "tests", "benchmarks", "examples", "topologies", "docs")
    below = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    return [path for path in [*sorted(ROOT.iterdir()), *below] if path.is_file()]


@cache
def words() -> frozenset[str]:
    """Return every word of the code."""
    sources = [path for path in ours() if path.suffix in CODE or path.name == "Makefile"]
    sources = [path for path in sources if "compiled" not in path.parts]
    return frozenset(
        word for path in sources for word in re.findall(r"\w+", path.read_text(errors="replace"))
    )


def pages() -> list[Path]:
    return [path for path in ours() if path.suffix == ".md"]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def dead(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    assert not [link for link in LINK.findall(prose(page)) if dead(page, link)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_name_is_one_of_the_code(page: Path):
    spans = {
        span.removesuffix("()") for span in SPAN.findall(prose(page)) if IDENTIFIER.fullmatch(span)
    }
    missing = {name for name in spans for word in name.split(".") if not known(word)}
    assert not missing - ELSEWHERE


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_name_of_the_package_can_be_imported(page: Path):
    names = re.findall(r"`(innet(?:\.\w+)+)(?:\(.*?\))?`", prose(page))
    assert not [name for name in names if not importable(name)]


def known(word: str) -> bool:
    counter = word.removesuffix("_total")  # prometheus-client adds this ending
    return bool({word, counter, re.sub(r"^innet_[a-z]+_", "", counter)} & words())


def importable(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[end:])
    return False


def test_the_layers_of_the_page_are_those_that_the_linter_enforces():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [each for each in settings["contracts"] if each.get("containers") == ["innet"]]
    enforced = [{f"innet.{name}" for name in row.split(" | ")} for row in contract["layers"]]
    section = (ROOT / "docs/architecture.md").read_text().split("## Layers")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (.*) \|$", section, re.MULTILINE)
    assert [set(re.findall(r"`(innet\.\w+)`", row)) for row in rows if "`" in row] == enforced


def test_the_lowest_versions_are_those_of_the_metadata_and_the_page_says_what_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
    lowest = dict(re.findall(r"^(\w+)>=(\S+)$", "\n".join(required), re.MULTILINE))
    page = (ROOT / "docs/install.md").read_text()
    rows = dict(re.findall(r"^\| (\w+) \| ([\d.]+) or newer \|", page, re.MULTILINE))
    assert rows == {
        "Python": project["requires-python"].removeprefix(">="),
        "protobuf": lowest["protobuf"],
        "PyTorch": lowest["torch"],
    }
    [tested] = re.findall(r"^\| PyTorch \| .* \| (.*) \|$", page, re.MULTILINE)
    constraints = (ROOT / "constraints.txt").read_text()
    [ours] = re.findall(r"^torch==(\d+\.\d+)\.", constraints, re.MULTILINE)
    assert {lowest["torch"], ours} <= {*tested.split(", ")}


def test_every_environment_variable_that_the_code_reads_has_a_row():
    sources = (
        path.read_text()
        for path in ours()
        if path.parent.is_relative_to(ROOT / "innet") and path.suffix == ".py"
    )
    read = {name for text in sources for name in re.findall(r'"(INNET_[A-Z_]+)"', text)}
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE)
    assert read == {name for row in rows for name in re.findall(r"`(INNET_\w+)`", row)}
