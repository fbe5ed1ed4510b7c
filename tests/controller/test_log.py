"""The controller's log as a record: lines of JSON, causes, refusals, and the history of a job."""

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog
from commands import BIN, run, serving
from racks import WITHIN, Rack, free_cables, means, rack
from stored_records import SWITCH
from structlog.testing import capture_logs
from switches import running_switch
from told import Told

from innet.controller.audit import Refusals
from innet.controller.server import ControllerServer
from innet.controller.state.registry import Policy, Registry
from innet.controller.state.store import Store
from innet.errors import ControllerError, NotAuthorized
from innet.host import membership
from innet.host.join import join
from innet.local.processes import announced, spawned
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.callers import Caller
from innet.rpc.client import connect, translated
from innet.telemetry import logs

VECTOR = np.ones(100, np.float32)
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.mark.parametrize("log", ["a full disk", "a pipe that nobody reads"])
def test_a_controller_whose_log_cannot_be_written_goes_on(log: str):
    serve = [BIN / "innet", "controller", "--address", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        if log == "a full disk":
            written = stack.enter_context(Path("/dev/full").open("w")).fileno()
        else:
            read, written = os.pipe()
            stack.callback(os.close, written)
            os.close(read)
        switch = stack.enter_context(running_switch(1))
        process = stack.enter_context(spawned(serve, stderr=written))
        address = announced(process, "controller")
        channel, stub = connect(address, WITHIN)
        with channel, translated("make a job"):
            stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=[1]))
            token = stub.CreateJob(pb.CreateJobRequest(name="train", switch="tor", workers=1)).token
            [link] = free_cables(switch)
            with join(address, "train", 0, link, token=token) as agent:
                assert agent.all_reduce(VECTOR).tolist() == VECTOR.tolist()
            stub.DeleteJob(pb.DeleteJobRequest(name="train"))
        process.terminate()
        process.wait(WITHIN)


def test_a_log_in_json_tells_what_happened_to_a_job(monkeypatch):
    monkeypatch.setattr(membership, "_FAREWELL_WITHIN", WITHIN)  # else it may seem to have died
    with running_switch(2) as switch, serving("--log-format", "json") as (process, address):
        channel, stub = connect(address, WITHIN)
        with channel:
            ports = [1, 2]
            stub.AddSwitch(
                pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=ports)
            )
            request = pb.CreateJobRequest(name="train", switch="tor", workers=2)
            token = stub.CreateJob(request).token
            with contextlib.ExitStack() as stack:
                agents = [
                    stack.enter_context(join(address, "train", rank, link, token=token))
                    for rank, link in enumerate(free_cables(switch))
                ]
                means(agents, VECTOR, VECTOR)
                agents[1].close()
            stub.DeleteJob(pb.DeleteJobRequest(name="train"))
        process.terminate()
        lines = [json.loads(line) for line in process.communicate(timeout=WITHIN)[1].splitlines()]
    for line in lines:
        assert {"event", "level", "timestamp"} <= line.keys()
        assert re.fullmatch(TIME, line["timestamp"])
    of_job = [line for line in lines if line.get("job") == "train"]
    events = [(line["event"], line.get("rank")) for line in of_job]
    assert events[0] == ("job created", None)
    joined = [event for event in events if event[0] == "worker joined"]
    assert joined == [("worker joined", 0), ("worker joined", 1)]
    begins = next(line for line in of_job if line["event"] == "term begins")
    assert (begins["path"], begins["why"]) == ("switch", "new_workers")
    left = [line for line in of_job if line["event"] == "worker left"]
    assert [line["why"] for line in left] == ["it has left the job"] * 2
    assert left[0]["rank"] == 1
    assert of_job[-1]["event"] == "job ended"
    changes = [line for line in lines if line.get("who") == "nobody"]
    assert [line["event"] for line in changes] == ["AddSwitch", "CreateJob", "DeleteJob"]


def out_of_space(*_: object) -> None:
    raise ControllerError("cannot write to the disk: no space left on device")


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as running:
        yield running


def test_the_history_of_a_job_tells_who_left_first_after_it_has_ended(tor: Rack, monkeypatch):
    monkeypatch.setattr(membership, "_FAREWELL_WITHIN", WITHIN)  # else it may seem to have died
    with tor.workers(2) as agents:
        means(agents, VECTOR, VECTOR)
        [name] = tor.tokens
        for rank in (1, 0):
            agents[rank].close()
        tor.delete(name)
    done = run("innet", "job", "history", name, "--json", "--controller", tor.controller)
    events = json.loads(done.stdout)
    assert [each["event"] for each in events][-1] == "job ended"
    left = [each for each in events if each["event"] == "worker left"]
    assert [each["ranks"] for each in left] == [[1], [0]]
    assert [each["at"] for each in events] == sorted(each["at"] for each in events)
    shown = run("innet", "job", "history", name, "--controller", tor.controller).stdout
    assert re.search(
        r"│ \d{4}-\d\d-\d\d \S+ │ worker left +│ 1 +│ \d+ +│ it has left the job", shown
    )
    unknown = run("innet", "job", "history", "nowhere", "--controller", tor.controller)
    assert (unknown.returncode, "there is no job 'nowhere'" in unknown.stderr) == (2, True)


def test_what_happens_while_the_disk_is_full_is_logged_once_and_kept_later(monkeypatch):
    told, registry = Told(slot_range=None), Registry(Store(), Policy())
    registry.store.add_switch(SWITCH)

    def commit() -> None:
        registry.commit(told.job, [])

    commit()
    told.seat(0, 1)
    with capture_logs() as logged:
        with monkeypatch.context() as broken:
            broken.setattr(Store, "save_job", out_of_space)
            commit()
            told.do("leave", 101, "it has left the job")
            for _ in range(3):  # the ticks of the clock
                commit()
        commit()
    events = ["job created", "worker joined", "worker joined", "worker left"]
    assert [each["event"] for each in logged if each["log_level"] == "info"] == events[1:]
    assert [each.event for each in registry.store.events("job")] == events
    [record] = registry.store.load().jobs
    assert record == told.job.record()
    registry.close()


def test_changes_and_refusals_are_recorded_with_the_name_in_the_certificate(folder: Path):
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(capture_logs())
        server = ControllerServer("127.0.0.1:0", tls.load(folder, tls.CONTROLLER))
        stack.callback(server.close)
        for role in (tls.WORKER, tls.ADMIN):
            identity = tls.load(folder, role)
            channel, stub = connect(f"127.0.0.1:{server.port}", WITHIN, identity)
            stack.enter_context(channel)
            for _ in range(3):
                with contextlib.suppress(Exception), translated("delete"):
                    stub.DeleteJob(pb.DeleteJobRequest(name="train"))
    [refused] = [each for each in said if each["event"] == "refused"]
    assert (refused["method"], refused["who"]) == ("DeleteJob", "innet worker (worker)")
    assert "needs the certificate of an administrator" in refused["why"]
    failed = [each for each in said if each["event"] == "DeleteJob"]
    assert [(each["who"], each["failed"]) for each in failed] == [
        ("innet admin (admin)", "NOT_FOUND")
    ] * 3


def test_a_wrong_token_is_recorded(tor: Rack):
    with tor.job(2) as name, capture_logs() as said:
        with pytest.raises(NotAuthorized), translated("join"):
            tor.stub.CheckJoin(pb.CheckJoinRequest(job=name, rank=1, token="wrong"))  # noqa: S106
        with pytest.raises(NotAuthorized):
            tor.join(name, 1, token="wrong")  # noqa: S106
    refused = [each for each in said if each["event"] == "refused"]
    assert [each["method"] for each in refused] == ["CheckJoin", "Join"]
    for each in refused:
        assert (each["who"], each["job"], each["rank"]) == ("nobody", name, 1)
        assert "the token is not" in each["why"]


def client(machine: int) -> Caller:
    return Caller(f"ipv4:10.0.0.{machine}:4000")


def test_refusals_are_logged_once_in_ten_seconds_for_each_machine_and_method():
    times = iter([0.0, 1.0, 9.9, 5.0, 10.1, 10.2, 10.3])
    refusals = Refusals(lambda: next(times))
    with capture_logs() as said:
        for machine in (1, 1, 1, 2, 1, 1):
            refusals.note("Join", client(machine), "the token is wrong")
        refusals.note("CheckJoin", client(1), "the token is wrong")
    assert [(each["peer"], each["more_before"]) for each in said] == [
        ("ipv4:10.0.0.1:4000", 0),
        ("ipv4:10.0.0.2:4000", 0),
        ("ipv4:10.0.0.1:4000", 2),
        ("ipv4:10.0.0.1:4000", 0),
    ]


FORGED = "2026-11-28T14:20:00.000000Z [info     ] DeleteJob                      name=jobB"


def test_text_of_others_adds_no_entry_and_no_escape_to_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text, handlers, hook = (
        f"\n{FORGED}\r\x1b]0;owned\x07\x85\u2028\t",
        logging.root.handlers[:],
        threading.excepthook,
    )
    try:
        logs.configure()
        log = structlog.get_logger()
        event = "event" + text
        log.info(event, name=text, several=[text], raw=text.encode(), problem=ValueError(text))
        logging.getLogger("a library").error("its %s", text)
        try:
            raise ValueError(text)
        except ValueError:
            log.exception("failed")
            logging.getLogger("a library").exception("failed, too")
        ended = threading.Thread(target=int, args=(text,))
        ended.start()
        ended.join()
    finally:
        structlog.reset_defaults()
        logging.root.handlers[:] = handlers
        threading.excepthook = hook
    said = capsys.readouterr().err
    lines = said.split("\n")
    assert "".join(lines).isprintable()
    assert sum(bool(re.match(TIME, line)) for line in lines) == 5
    assert all(line.startswith("    ") for line in lines if line and not re.match(TIME, line))
