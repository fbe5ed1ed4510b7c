"""A certificate that ends soon is a warning: in the logs, and in `innet doctor`."""

import json
import logging
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from commands import run
from secured import PEOPLE, SecuredRack, add_switch, secured_rack
from structlog.testing import capture_logs
from waiting import until

from innet.controller.certificate_watch import ExpiryReminder
from innet.controller.controller import Controller
from innet.controller.metrics import ControllerCollector
from innet.controller.server import ControllerServer
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.errors import UsageError
from innet.observe import expiry
from innet.observe.checklist import CHECKS
from innet.observe.findings import Finding, Severity
from innet.observe.joining import WorkerEnvironment
from innet.observe.roles import Role
from innet.rpc import channels, tls
from innet.rpc.certificates import issue, make

SOON, DAY = timedelta(days=3), 24 * 3600.0
ENDS = "the controller's certificate ends soon"
EXPIRY = "certificate_expiry_timestamp_seconds"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRack]:
    """Run a rack where the certificates of the controller and of alice end soon."""
    path = tmp_path_factory.mktemp("rack") / "tls"
    with secured_rack(path) as made:
        make(path, [], SOON)
        issue(path, "alice", PEOPLE["alice"], SOON)
        with made.serving():
            add_switch(made)
            made.create("alice", "train")
            yield made


def reminders(folder: Path, times: list[float]) -> list[str]:
    """Return what is logged if the reminder looks at these times."""
    now = 0.0
    reminder = ExpiryReminder(tls.load(folder, tls.CONTROLLER), lambda: now)
    with capture_logs() as said:
        for now in (0.0, *times):  # noqa: B007 - the reminder's clock reads it
            reminder.look()
    return [each["event"] for each in said]


def test_the_controller_reminds_once_a_day_until_the_certificate_is_renewed(tmp_path: Path):
    make(tmp_path, [], SOON)
    said = reminders(tmp_path, [1.0, DAY - 1, DAY + 1, 1.5 * DAY, 2 * DAY + 2])
    assert len(said) == 3
    assert all(ENDS in each for each in said)
    make(tmp_path, [])
    assert not reminders(tmp_path, [DAY + 1])


@pytest.mark.parametrize("name", ["controller.pem", "controller-key.pem"])
def test_files_that_have_gone_while_it_runs_are_an_error_of_innets(tmp_path: Path, name: str):
    make(tmp_path, [])
    identity = tls.load(tmp_path, tls.CONTROLLER)
    (tmp_path / name).unlink()
    for used in (identity.renewed_expiry, identity.channel_credentials):
        with pytest.raises(UsageError, match=name):
            used()


def test_a_running_controller_warns_by_itself(tmp_path: Path):
    make(tmp_path, [], SOON)
    with capture_logs() as said:
        server = ControllerServer("127.0.0.1:0", tls.load(tmp_path, tls.CONTROLLER))
        try:
            until(lambda: any(ENDS in each["event"] for each in said))
        finally:
            server.close()


def test_the_metric_of_the_expiry_stays_when_the_certificate_has_expired(tmp_path: Path):
    make(tmp_path, [], SOON)
    identity = tls.load(tmp_path, tls.CONTROLLER)
    controller = Controller(Store(), Policy(), identity)
    try:
        collector = ControllerCollector(controller)
        values = []
        for valid in (SOON, 2 * SOON, -timedelta(seconds=1)):
            make(tmp_path, [], valid)
            [family] = [each for each in collector.collect() if each.name.endswith(EXPIRY)]
            values.append(family.samples[0].value)
    finally:
        controller.close()
    assert values[0] < values[1] == values[2]


def found(role: Role, name: str, rack: SecuredRack, who: str) -> Finding:
    environment = {"INNET_CONTROLLER": rack.address, "INNET_TLS": str(rack.folder / who)}
    checks = {"controller": CHECKS[role][0], "certificates": CHECKS[role][1]}
    return checks[name](WorkerEnvironment(environment))


@pytest.mark.parametrize("role", [Role.WORKER, Role.OPERATOR])
def test_doctor_warns_of_the_own_certificate_and_the_controllers(rack: SecuredRack, role: Role):
    for name in ("certificates", "controller"):
        finding = found(role, name, rack, "alice")
        assert finding.severity == Severity.WARNING
        assert " ends on 20" in finding.statement
        assert "innet certificates make" in finding.remedy
    assert found(role, "certificates", rack, "bob").severity == Severity.GOOD


def test_doctor_warns_of_certificates_also_when_asked_about_a_job(rack: SecuredRack):
    folder = str(rack.folder / "alice")
    options = ("--controller", rack.address, "--tls", folder, "--interval", "0.1", "--json")
    done = run("innet", "doctor", "train", *options)
    warned = [each for each in json.loads(done.stdout) if each["subject"] == "certificates"]
    [finding] = warned
    assert finding["severity"] == "warning"
    assert f"{folder}/user.pem ends on" in finding["statement"]


def test_only_certificates_that_end_soon_are_findings(rack: SecuredRack):
    assert [each.subject for each in expiry.of_operator(rack.address, rack.folder / "bob")] == [
        "controller"
    ]
    assert not [*expiry.of_operator(rack.address, None)]


def test_a_worker_whose_certificate_ends_soon_logs_it(rack: SecuredRack, caplog):
    token = rack.create("alice", "short")
    with caplog.at_level(logging.WARNING, "innet"), rack.join("alice", "short", 0, token) as agent:
        assert (agent.all_reduce(np.ones(4, np.float32)) == 1).all()
    assert "worker.pem ends soon" in caplog.text


def test_an_expiry_is_that_of_the_certificate_that_is_served(rack: SecuredRack, tmp_path: Path):
    shutil.copytree(rack.folder, tmp_path / "tls")
    identity = tls.load(tmp_path / "tls" / "bob", tls.USER)
    served = channels.server_expiry(rack.address, identity)
    assert served == tls.load(rack.folder, tls.CONTROLLER).expires
    assert channels.server_expiry("127.0.0.1:1", identity) is None
