"""The rights of users, observers and administrators over jobs, with a real controller and mutual TLS."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run
from secured import SecuredRack, add_switch, secured_rack
from structlog.testing import capture_logs

from innet.errors import InnetError, NotAuthorized, NotFound
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import translated


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRack]:
    """Run a rack where alice, bob and root have a job each."""
    path = tmp_path_factory.mktemp("rack")
    with secured_rack(path / "tls") as made:
        with made.serving(path / "state"):
            add_switch(made)
            for name in ("alice", "bob", "root"):
                made.create(name, f"of-{name}")
        with made.serving(path / "state"):  # the owners outlive the controller
            yield made


def ask(rack: SecuredRack, who: str, method: str, /, **fields: Any) -> Any:
    with rack.client(who) as stub, translated("ask"):
        return getattr(stub, method)(getattr(pb, f"{method}Request")(**fields))


def jobs(rack: SecuredRack, name: str) -> tuple[list[str], int]:
    listed = ask(rack, name, "ListJobs")
    return [job.name for job in listed.jobs], listed.left_out


def test_a_user_sees_own_jobs_and_how_many_are_left_out(rack: SecuredRack):
    everything = ["of-alice", "of-bob", "of-root"]
    assert jobs(rack, "alice") == (["of-alice"], 2)
    assert jobs(rack, "bob") == (["of-bob"], 2)
    assert jobs(rack, "olivia") == (everything, 0)
    assert jobs(rack, "root") == (everything, 0)
    assert ask(rack, "alice", "GetJob", name="of-alice").owner == "alice"
    assert [switch.name for switch in ask(rack, "alice", "ListSwitches").switches] == ["tor"]


@pytest.mark.parametrize("method", ["GetJob", "GetJobHistory", "DeleteJob"])
@pytest.mark.parametrize("job", ["of-bob", "of-root"])
def test_a_user_reaches_no_job_of_others(rack: SecuredRack, method: str, job: str):
    with pytest.raises(NotAuthorized, match=f"'{job}' is another user's"):
        ask(rack, "alice", method, name=job)
    assert jobs(rack, "root")[0] == ["of-alice", "of-bob", "of-root"]


def test_a_refusal_is_recorded_with_the_names_of_the_user_and_of_the_job(rack: SecuredRack):
    with capture_logs() as said, pytest.raises(NotAuthorized):
        ask(rack, "mallory", "DeleteJob", name="of-bob")
    [refused] = [each for each in said if each["event"] == "refused"]
    assert (refused["method"], refused["name"]) == ("DeleteJob", "of-bob")
    assert (refused["who"], refused["log_level"]) == ("mallory (user)", "warning")


def test_an_error_names_no_jobs_of_others(rack: SecuredRack):
    with pytest.raises(NotFound, match=r"there is no job 'nothing'.* has: of-alice$"):
        ask(rack, "alice", "GetJob", name="nothing")


@pytest.mark.parametrize("name", ["alice", "olivia"])
@pytest.mark.parametrize("method", ["AddSwitch", "SetSwitchPorts", "RemoveSwitch"])
def test_users_and_observers_change_no_switch(rack: SecuredRack, name: str, method: str):
    with pytest.raises(NotAuthorized, match=f"{method} needs the certificate of an administrator"):
        ask(rack, name, method, name="tor")


@pytest.mark.parametrize("name", ["alice", "olivia"])
def test_users_and_observers_are_no_workers(rack: SecuredRack, name: str):
    message = pb.WorkerMessage(join=pb.JoinRequest(job="of-alice"))
    why = "Join needs the certificate of an administrator or a worker"
    with rack.client(name) as stub, pytest.raises(NotAuthorized, match=why), translated("join"):
        next(stub.Join(iter([message])))


def test_an_observer_creates_and_deletes_no_job(rack: SecuredRack):
    for method in ("CreateJob", "DeleteJob"):
        why = f"{method} needs the certificate of an administrator or a user, .* for: observer"
        with pytest.raises(NotAuthorized, match=why):
            ask(rack, "olivia", method, name="of-alice")
    assert ask(rack, "olivia", "GetJob", name="of-bob").owner == "bob"


def test_a_user_deletes_own_jobs_and_keeps_their_history(rack: SecuredRack):
    rack.create("alice", "short")
    ask(rack, "alice", "DeleteJob", name="short")
    rack.create("bob", "short")  # the name is free again
    try:
        events = ask(rack, "alice", "GetJobHistory", name="short").events
        assert [each.event for each in events] == ["job created", "job ended"]
        assert len(ask(rack, "bob", "GetJobHistory", name="short").events) == 1
        assert len(ask(rack, "olivia", "GetJobHistory", name="short").events) == 3
    finally:
        ask(rack, "root", "DeleteJob", name="short")


def test_the_commands_say_what_is_left_out(rack: SecuredRack):
    where = {
        "INNET_CONTROLLER": rack.address,
        "INNET_TLS": str(rack.folder / "alice"),
        "COLUMNS": "200",
    }
    sentence = "2 jobs of other users are left out: a user's certificate shows only its own jobs"
    for command in (("job", "list"), ("top", "--once", "--interval", "0.1")):
        done = run("innet", *command, **where)
        assert (done.returncode, done.stderr) == (0, "")
        assert sentence in done.stdout
        assert ("of-alice" in done.stdout, "of-bob" in done.stdout) == (True, False)
    mine = run("innet", "doctor", "of-alice", "--interval", "0.1", **where)
    assert mine.returncode == 1  # its worker has not come
    assert "job of-alice on tor: 0 of 1 worker," in mine.stdout
    others = run("innet", "doctor", "of-bob", **where)
    assert (others.returncode, others.stdout) == (2, "")
    assert "the job 'of-bob' is another user's: ask that user or an administrator" in others.stderr


def test_who_has_two_roles_may_do_what_either_allows(rack: SecuredRack, tmp_path: Path):
    """A user who is a worker, too, joins a job, and still sees only own jobs."""
    token = rack.create("bob", "shared")
    with rack.join("alice", "shared", 0, token), contextlib.suppress(InnetError):
        assert jobs(rack, "alice") == (["of-alice"], 3)
    ask(rack, "bob", "DeleteJob", name="shared")
