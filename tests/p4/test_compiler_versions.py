"""The version that a P4 compiler prints decides which recorded files its output is compared with."""

import json
from pathlib import Path

import pytest
from compilers import kept, manifest, recorded_version, should_agree, tofino_manifest
from tiny_programs import DIGESTS

from innet.errors import CompilerError
from innet.p4.compile import compiler_version
from innet.p4.versions import CompilerVersion

BM2 = "p4c-bm2-ss"
WITHOUT_GIT = "p4c-bm2-ss\nVersion 1.2.5.16 (SHA:  BUILD: Release)\n"


@pytest.mark.parametrize(
    ("printed", "recorded"),
    [
        ("p4c-bm2-ss\nVersion 1.2.5.16 (SHA: 34b86e9bac BUILD: Release)\n", "1.2.5.16 (SHA: 34b86e9bac)"),
        ("Version 1.2.5 (SHA: 0123abc)", "1.2.5 (SHA: 0123abc)"),
        (WITHOUT_GIT, "1.2.5.16"),
        ("Version 1.2.5.16 (SHA: BUILD: DEBUG)", "1.2.5.16"),
        ("Version 1.2.5.16 (SHA: unknown)", "1.2.5.16"),
        ("p4c-barefoot 9.13.4\nVersion 9.13.4", "9.13.4"),
        ("Version 1.2.5-rc1 ()", "1.2.5-rc1"),
    ],
)  # fmt: skip
def test_only_a_commit_is_recorded_as_one(printed: str, recorded: str):
    assert str(CompilerVersion.printed(BM2, printed)) == f"{BM2} {recorded}"


def test_a_compiler_without_a_version_is_an_error_with_what_it_printed():
    with pytest.raises(CompilerError, match="no such option"):
        CompilerVersion.printed(BM2, "no such option")


def test_the_version_is_what_the_compiler_on_the_path_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiler = tmp_path / BM2
    compiler.write_text(f"#!/bin/sh\ncat <<EOF\n{WITHOUT_GIT}EOF\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert compiler_version() == CompilerVersion(BM2, "1.2.5.16")


@pytest.mark.parametrize(
    "text",
    [
        manifest()["compiler"],
        tofino_manifest()["compiler"],
        json.loads(DIGESTS.read_text())["compiler"],
    ],
)
def test_the_committed_manifests_name_a_version_and_no_word_that_is_no_commit(text: str):
    assert str(recorded_version(text)) == text


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("p4c-bm2-ss 1.2.5.16", "p4c-bm2-ss 1.2.5.3", True),
        ("p4c-bm2-ss 1.2.5.16", "p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9bac)", True),
        ("p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9)", "p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9bac)", True),
        ("p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9bac)", "p4c-bm2-ss 1.2.5.16 (SHA: 0123abcd)", False),
        ("p4c-bm2-ss 1.2.5.16", "p4c-bm2-ss 1.2.4.16", False),
        ("p4c-bm2-ss 9.13.4", "p4c-barefoot 9.13.4", False),
    ],
)
def test_programs_are_compared_between_compilers_that_should_agree(
    one: str, other: str, agree: bool
):
    versions = recorded_version(one), recorded_version(other)
    assert should_agree(versions[0], versions[1]) is agree
    assert should_agree(versions[1], versions[0]) is agree


def test_what_a_compiler_made_is_kept_until_the_compiler_or_any_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiler, program, included = (tmp_path / name for name in (BM2, "program.p4", "included.p4"))
    for file in (compiler, program, included):
        file.write_text("first")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path / "cache"))
    runs = []

    def make(folder: Path) -> None:
        runs.append(folder)
        (folder / "made").write_text(f"of run {len(runs)}")

    def made() -> str:
        [file] = kept(BM2, "program", [program, included], make)
        return file.read_text()

    assert [made(), made()] == ["of run 1", "of run 1"]
    included.write_text("other")
    assert [made(), made()] == ["of run 2", "of run 2"]
    compiler.write_text("another compiler")
    assert [made(), made()] == ["of run 3", "of run 3"]
    included.write_text("first")
    assert made() == "of run 4"
