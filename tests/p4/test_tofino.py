"""The program for Tofino: p4c-barefoot's output for the present sources, and its resources."""

import re
from pathlib import Path

import pytest
from commands import refuse, run
from compilers import assembly, kept, needs_compiler, tofino_manifest
from google.protobuf import text_format
from paths import ROOT

from innet.controller.switches.targets.choice import TARGETS
from innet.controller.switches.targets.interface import Target
from innet.controller.switches.targets.tofino import Tofino
from innet.errors import CompilerError
from innet.p4 import compile as p4c
from innet.p4 import tofino
from innet.p4.artifacts import artifact, digest
from innet.p4.report import LIMITS, Containers, ResourceReport, Stage, lines
from innet.p4runtime import p4info_pb2

ASSEMBLY = """\
version:
  run_id: "0f3dedf3f64541eb"
  target: Tofino
phv ingress:
  hdr.seen: W3
  meta.first: {  stage 1..2: H3(0..7) }
  meta.second: {  stage 2: H3(8..15) }
  hdr.other: TB5
phv egress:
  hdr.left: H90
parser ingress: start
stage 0 ingress:
  ternary_match workers 0:
    row: [ 0, 1 ]
    column:
    - 0
    - 0
    input_xbar:
      ternary group 0: { 0: hdr.seen }
    indirect: workers$tind
  ternary_indirect workers$tind:
    row: 0
    column: 2
    actions:
      admit(1, 9):
      - set meta.first, worker
stage 1 ingress:
  exact_match counted 0:
    row: [ 7, 6 ]
    column:
    - 7
    - [ 2, 3, 4 ]
    hash_dist:
      0: { hash: 1, mask: 0xffff, shift: 6 }
    input_xbar:
      exact group 0: { 4: meta.first }
    context_json:
      static_entries:
      - priority: 0

    actions:
      count(0, 0):
      - set H3(8..15), counted$salu.cells
  stateful counted$salu.cells:
    row: 3
    column: [ 0, 1 ]
    maprams: [ 0, 1 ]
stage 2 ingress:
  gateway cond-1 0:
    input_xbar:
      exact group 0: { 0: meta.second }
stage 0 egress:
  gateway cond-2 8:
    input_xbar:
      exact group 0: { 0: hdr.left }
"""


def test_a_report_says_what_the_assembly_says():
    report = ResourceReport.of(ASSEMBLY)
    assert (report.chip, report.stages_available) == ("Tofino", 12)
    assert report.stages == [
        Stage(tables=2, srams=1, tcams=2, map_rams=0, stateful_alus=0, hash_units=0),
        Stage(tables=1, srams=6, tcams=0, map_rams=2, stateful_alus=1, hash_units=1),
        Stage(tables=1, srams=0, tcams=0, map_rams=0, stateful_alus=0, hash_units=0),
    ]
    assert [each for each in report.containers if each.used] == [
        Containers("normal", 32, 1, 64),
        Containers("normal", 16, 2, 96),
        Containers("tagalong", 8, 1, 32),
    ]
    assert report.chain == ["workers", "counted", "cond-1"]


def test_a_report_outlives_its_file():
    report = ResourceReport.of(ASSEMBLY)
    assert ResourceReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["", "version:\n  target: Trident\n"])
def test_what_is_no_assembly_is_refused(text: str):
    with pytest.raises(CompilerError, match="not an assembly"):
        ResourceReport.of(text)


def test_the_programs_were_made_from_the_present_sources():
    made = tofino_manifest()["sources"]
    assert p4c.source_digests("tna") == made, "P4 sources have changed: innet p4 compile --target"


def test_the_programs_are_the_files_that_the_compiler_wrote():
    programs = tofino_manifest()["programs"]
    assert set(programs) == set(tofino.CHIPS)
    recorded = {}
    for chip, (_, slots) in tofino.CHIPS.items():
        assert programs[chip]["options"] == p4c.options(tofino.LANES, slots)
        recorded |= programs[chip]["sha256"]
    present = [file for file in tofino.artifacts().iterdir() if file.name != "manifest.json"]
    assert {file.name: digest(file.read_bytes()) for file in present} == recorded


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_the_committed_reports_are_those_of_the_committed_assemblies(chip: str):
    assert tofino.report(chip) == ResourceReport.of(assembly(chip))


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_the_program_fits_the_chip(chip: str):
    report = tofino.report(chip)
    assert 0 < len(report.stages) <= report.stages_available
    for stage in report.stages:
        assert all(vars(stage)[name] <= vars(LIMITS)[name] for name in vars(LIMITS))
    assert all(each.used <= each.available for each in report.containers)


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_the_parser_chooses_where_the_source_does(chip: str):
    assert tofino.selects(assembly(chip))
    for gress in ("ingress", "egress"):
        states = parser_states(assembly(chip), gress)
        assert len(states) > 1
        for name, (matched, transitions) in states.items():
            assert len(transitions) == len(set(transitions)), f"{name} cannot choose"
            assert bool(matched) == (transitions != ["*"]), name
    wanted = {"0x0806", "0x0800", "0x8100", "0x88a8", "0x****"}  # the EtherTypes, and all others
    assert wanted in [
        set(transitions) for _, transitions in parser_states(assembly(chip), "ingress").values()
    ]


def parser_states(assembly: str, gress: str) -> dict[str, tuple[str, list[str]]]:
    """Return the select keys of each state of a parser, and the patterns of its transitions."""
    [text] = re.findall(rf"^parser {gress}:\n((?: .*\n)+)", assembly, re.MULTILINE)
    found = {}
    for name, body in re.findall(r"^    (\S+):\n((?:      .*\n)+)", text, re.MULTILINE):
        matched = "".join(re.findall(r"^      match: (.*)$", body, re.MULTILINE))
        found[name] = matched, re.findall(r"^      (\*|0[xb][\da-f*]+):$", body, re.MULTILINE)
    return found


def test_an_assembly_whose_parser_chooses_nothing_is_known():
    assert not tofino.selects(ASSEMBLY)


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_every_lane_has_a_cell_in_each_copy_of_each_slot(chip: str):
    slots = tofino.CHIPS[chip].slots
    assert slots >= 8192
    sizes = re.findall(r"lanes\.cell_\w\w, size: (\d+) }", assembly(chip))
    assert sizes == [str(2 * slots)] * (tofino.LANES // 2)  # two lanes to a register


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_the_controller_finds_the_tables_of_the_other_target(chip: str):
    text = (tofino.artifacts() / f"innet-{tofino.LANES}.{chip}.p4info.txtpb").read_text()
    ours = _described(text_format.Parse(text, p4info_pb2.P4Info()))
    for name, wanted in _described(artifact(64).p4info).items():
        assert ours[name] == wanted, name


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_bitmaps_have_a_bit_for_each_contributor(target: Target):
    chip = target.chip if isinstance(target, Tofino) else ""
    info = tofino.p4info(chip) if chip else artifact(64).p4info
    widths = {
        param.bitwidth
        for action in info.actions
        for param in action.params
        if param.name in BITMAPS
    }
    assert widths == {target.contributors}


BITMAPS = {"worker", "bits", "elsewhere"}
"""The parameters that are bitmaps, which are narrower on Tofino."""


def _described(info: p4info_pb2.P4Info) -> dict[str, object]:
    """Return the tables that a controller writes, and the counters that it reads, by name."""
    actions = {each.preamble.id: each for each in info.actions}
    described: dict[str, object] = {}
    for table in info.tables:
        if table.is_const_table:
            continue
        fields = [(each.name, each.bitwidth, each.match_type) for each in table.match_fields]
        called = {
            _last(actions[ref.id].preamble.name): [
                (each.name, each.name in BITMAPS or each.bitwidth)
                for each in actions[ref.id].params
            ]
            for ref in table.action_refs
        }
        described[_last(table.preamble.name)] = (fields, called, table.size)
    for counter in info.counters:
        described[_last(counter.preamble.name)] = counter.size
    return described


def _last(name: str) -> str:
    return name.rpartition(".")[2]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_compiling_gives_the_committed_program(chip: str):
    needs_compiler(tofino_manifest()["compiler"])
    sources = [each for each in sorted(p4c.SOURCES.rglob("*")) if each.suffix in (".p4", ".py")]
    try:
        made = kept(
            tofino.COMPILER, chip, sources,
            lambda folder: tofino.compile_program(chip, tofino.CHIPS[chip].slots, folder),
        )  # fmt: skip
    except CompilerError as problem:
        if "pull request" not in str(problem):
            raise
        pytest.skip(str(problem))
    assert made
    for file in made:
        assert file.read_bytes() == (tofino.artifacts() / file.name).read_bytes()


def test_without_the_p4_compiler_the_error_says_what_to_do(tmp_path: Path):
    command = ("innet", "p4", "compile", "--target", "tofino", "-o", str(tmp_path))
    done = run(*command, PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "error: p4c-barefoot is not on the PATH: install p4c, or use the programs that come with "
        "innet\n"
    )


def test_targets_and_lanes_that_there_are_not_end_with_code_2(tmp_path: Path):
    compile_to = f"p4 compile -o {tmp_path}"
    refuse("target 'trident'", "innet", *f"{compile_to} --target trident".split())
    refuse("256 lanes: .* 64", "innet", *f"{compile_to} --target tofino --lanes 256".split())


def test_the_report_of_both_chips_is_printed():
    done = run("innet", "p4", "report")
    assert done.returncode == 0, done.stderr
    headings = re.findall(r"^(\w+): \d+ of (\d+) stages", done.stdout, re.MULTILINE)
    assert headings == [("Tofino", "12"), ("Tofino2", "20")]


def test_the_document_has_the_reports():
    text = (ROOT / "docs/tofino.md").read_text()
    for chip in tofino.CHIPS:
        assert "\n".join(lines(tofino.report(chip))) in text


@pytest.mark.parametrize("chip", tofino.CHIPS)
def test_twice_the_slots_would_not_fit(chip: str):
    rows, spare = 1024 * 2, 1  # pairs of words in an SRAM block; blocks besides the cells'
    for slots, fits in ((tofino.CHIPS[chip].slots, True), (2 * tofino.CHIPS[chip].slots, False)):
        blocks = 2 * slots // rows + spare
        assert (LIMITS.stateful_alus * blocks <= LIMITS.map_rams) == fits
    full = tofino.report(chip).stages[-1]
    blocks = 2 * tofino.CHIPS[chip].slots // rows + spare
    assert full.map_rams == full.stateful_alus * blocks


def test_the_report_of_an_assembly_is_printed(tmp_path: Path):
    (tmp_path / "small.bfa").write_text(ASSEMBLY)
    done = run("innet", "p4", "report", "--from", str(tmp_path / "small.bfa"))
    assert "Tofino: 3 of 12 stages" in done.stdout
    assert "3 tables, workers → counted → cond-1" in done.stdout
