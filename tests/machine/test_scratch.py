"""Temporary folders go with their process, also with one that is killed."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from innet.host.links import links_of_all
from innet.machine.scratch import remove_leftovers, scratch_folder

NOBODY = 12345
HOLD = """
import sys
from pathlib import Path
from innet.machine.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: root")


@contextlib.contextmanager
def holder(parent: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """Yield a process that keeps a folder until its input ends, and the folder."""
    run = [sys.executable, "-c", HOLD, str(parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(run, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())


def killed(parent: Path) -> Path:
    """Return the folder of a process that was killed."""
    with holder(parent) as (process, folder):
        process.kill()
    return folder


def test_a_folder_is_its_users_only_and_goes_with_its_block(tmp_path: Path):
    with scratch_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "inner").mkdir()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["sp ace", "com,ma", "plus+", "%20", "ö", "long" * 30])
def test_a_link_can_name_every_file_in_the_folder(name: str, tmp_path: Path, monkeypatch):
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with scratch_folder() as folder, contextlib.closing(socket.socket(socket.AF_UNIX)) as cable:
        cable.bind(str(folder / "512"))
        assert links_of_all({"INNET_LINK": f"shm:{folder}/512"}) == [[f"shm:{folder}/512"]]
        assert folder.parent == Path("/tmp")  # noqa: S108


def test_a_folder_is_made_where_the_user_wants_it(monkeypatch):
    within = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's folders may have long names
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(within))
        with scratch_folder() as folder:
            assert folder.parent == within
    finally:
        within.rmdir()


def test_the_next_folder_replaces_those_of_killed_processes_and_no_others(tmp_path: Path):
    dead = [killed(tmp_path) for _ in range(2)]
    others = [tmp_path / "somebody-elses", tmp_path / f"{dead[0].name}.file"]
    others[0].mkdir()
    others[1].touch()
    assert dead[1].exists()
    assert not dead[0].exists()  # the second process has removed it
    with holder(tmp_path) as (process, alive), scratch_folder(tmp_path) as own:
        assert {*tmp_path.iterdir()} == {alive, own, *others}
        process.stdin.close()
        process.wait()
        assert not alive.exists()
    assert {*tmp_path.iterdir()} == {*others}


def test_folders_that_are_made_while_others_look_for_leftovers_stay(tmp_path: Path):
    def make(_: int) -> None:
        with scratch_folder(tmp_path) as folder:
            (folder / "file").touch()

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(make, range(400))]) == 400
    remove_leftovers(tmp_path)
    assert not [*tmp_path.iterdir()]


@as_root
def test_root_removes_its_own_leftovers_and_nothing_that_others_have_planted(tmp_path: Path):
    folders, precious = tmp_path / "run", tmp_path / "precious"
    for folder in (folders, precious):
        folder.mkdir()
    (precious / "file").touch()
    own, foreign = killed(folders), folders / "innet-run-foreign"
    linked = folders / "innet-run-linked"
    for folder in (own, foreign):
        (folder / "inner").mkdir(parents=True)
        (folder / "link").symlink_to(precious)
        (folder / "inner" / "link").symlink_to(precious / "file")
    linked.symlink_to(precious)
    os.chown(foreign, NOBODY, NOBODY)
    remove_leftovers(folders)
    assert {*folders.iterdir()} == {linked, foreign}
    assert (precious / "file").exists()
    assert (foreign / "inner").exists()
