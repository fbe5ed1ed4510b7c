"""Root and compiled code rely on folders and files that no other user can have changed."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import BIN

from innet.errors import CompilerError, InnetError, UsageError
from innet.machine.private import check_file, check_folder, make_folder
from innet.native import compiler as native
from innet.observe import checklist
from innet.observe.findings import Severity

NOBODY = 12345
SOURCE = {"answer.c": b"int answer(void) { return 42; }\n"}
FLAGS = ("-fPIC",)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: root")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a cache, which is not there yet."""
    folder = tmp_path / "a" / "cache"
    monkeypatch.setenv("INNET_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def no_umask() -> Iterator[None]:
    """A process that takes no rights from what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def compiled() -> Path:
    return native.compile_library(FLAGS, SOURCE.values(), lambda: SOURCE)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# ---- the cache of compiled programs -------------------------------------------------------------


def test_what_was_compiled_is_for_its_user_only_whatever_the_umask_is(cache: Path, no_umask: None):
    library = compiled()
    assert ctypes.CDLL(str(library)).answer() == 42
    assert (mode(cache.parent), mode(cache), mode(library)) == (0o700, 0o700, 0o600)
    assert compiled() == library
    assert [*cache.iterdir()] == [library]


@as_root
def test_a_cache_of_another_user_is_not_used(cache: Path):
    cache.mkdir(parents=True)
    os.chown(cache, NOBODY, NOBODY)
    with pytest.raises(CompilerError, match=rf"{cache} belongs to user {NOBODY}.*another folder"):
        compiled()
    assert [*cache.iterdir()] == []


@as_root
def test_a_cache_below_another_users_folder_is_not_used(cache: Path):
    cache.mkdir(parents=True)
    os.chown(cache.parent, NOBODY, NOBODY)
    with pytest.raises(CompilerError, match=rf"{cache.parent} belongs to user {NOBODY}"):
        compiled()


@pytest.mark.parametrize("rights", [0o777, 0o775, 0o1777])
def test_a_cache_that_others_can_write_is_not_used(cache: Path, rights: int):
    compiled()
    cache.chmod(rights)
    with pytest.raises(CompilerError, match=rf"written by other users \(mode {rights:o}\): .*go-w"):
        compiled()


@as_root
def test_a_library_of_another_user_is_never_loaded(cache: Path):
    os.chown(compiled(), NOBODY, NOBODY)
    with pytest.raises(CompilerError, match=rf"cannot be trusted: .*\.so belongs to user {NOBODY}"):
        compiled()


def test_a_library_that_others_can_write_is_never_loaded(cache: Path):
    compiled().chmod(0o666)
    with pytest.raises(CompilerError, match=r"cannot be trusted: .*\(mode 666\)"):
        compiled()


@pytest.mark.parametrize("target", ["planted.so", "nowhere"])
def test_a_link_in_a_librarys_place_is_never_loaded(cache: Path, tmp_path: Path, target: str):
    library = compiled()
    library.rename(tmp_path / "planted.so")
    library.symlink_to(tmp_path / target)
    with pytest.raises(CompilerError, match="is no file: remove it"):
        compiled()


def test_where_nothing_can_be_made_is_said(cache: Path):
    cache.parent.touch()
    with pytest.raises(CompilerError, match=f"cannot make the folder {cache}: Not a directory"):
        compiled()


@pytest.mark.parametrize("value", ["", ".", "caches", "../caches"])
def test_without_an_absolute_xdg_cache_home_the_cache_is_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
):
    monkeypatch.delenv("INNET_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert native.cache_folder() == tmp_path / ".cache" / "innet"


def test_an_absolute_xdg_cache_home_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("INNET_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.cache_folder() == tmp_path / "innet"


@as_root
@pytest.mark.parametrize("what", ["cache", "library"])
def test_the_doctor_names_a_cache_that_cannot_be_used_and_the_remedy(cache: Path, what: str):
    planted = {"library": compiled(), "cache": cache}[what]
    os.chown(planted, NOBODY, NOBODY)
    compiles = {checklist.Role.WORKER, checklist.Role.SWITCH}
    assert all(checklist.cache in checklist.CHECKS[role] for role in compiles)
    finding = checklist.cache({})
    assert finding.severity == Severity.PROBLEM
    assert f"{planted} belongs to user {NOBODY}" in finding.statement
    assert finding.remedy == "or set INNET_CACHE_DIR to a folder of your own"


@as_root
def test_a_switch_does_not_run_what_another_user_has_planted(cache: Path):
    cache.mkdir(parents=True)
    os.chown(cache, NOBODY, NOBODY)
    program = Path("innet/p4/compiled/innet-64.json")
    done = subprocess.run(
        [BIN / "innet-switch", program], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 1
    assert "the cache of compiled programs cannot be used" in done.stderr


@as_root
def test_a_folder_for_root_is_not_one_that_another_user_has_planted(tmp_path: Path):
    planted, safe = tmp_path / "planted", tmp_path / "safe"
    planted.mkdir()
    os.chown(planted, NOBODY, NOBODY)
    (tmp_path / "link").symlink_to(planted)
    for path in (planted, tmp_path / "link", planted / "below"):
        with pytest.raises(UsageError, match=f"{planted} belongs to user {NOBODY}"):
            make_folder(path)
    assert mode(make_folder(safe)) == 0o700


def test_what_is_not_there_or_of_another_kind_is_refused(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    check_file(file)
    check_folder(tmp_path)
    for check, path in (
        (check_file, tmp_path), (check_folder, file), (check_file, tmp_path / "nowhere"),
    ):  # fmt: skip
        with pytest.raises(InnetError, match=str(path)):
            check(path)
