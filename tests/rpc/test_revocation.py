"""Revoked certificates, over mutual TLS with a controller that runs on."""

import contextlib
import ssl
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest
from commands import refuse, run
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from secured import SecuredRack, add_switch, secured_rack
from structlog.testing import capture_logs
from waiting import until

from innet.controller.server import ControllerServer
from innet.errors import AllReduceError, NotAuthorized, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.client import translated
from innet.rpc.issued import RECORD, issued, revoke, revoke_files
from innet.rpc.revocation import Revocations, fingerprint, signed_part, signed_part_of_pem
from innet.servers.pbox.secured import ServerTls
from innet.switch.p4runtime.credentials import TlsFiles

REFUSED = "this certificate has been revoked: ask whoever makes certificates for a new one"
ONE, TWO = "tbs:" + "01" * 32, "tbs:" + "ab" * 32
OLD = "cd" * 32


# ---- the list -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / tls.REVOKED


def seen(revocations: Revocations) -> frozenset[str]:
    revocations.refresh()
    return revocations.all


def test_the_list_has_comments_and_either_case(path: Path):
    path.write_text(f"{ONE}  # alice\n\n# nobody\n{TWO.upper()}\n")
    assert Revocations(path).all == {ONE, TWO}


@pytest.mark.parametrize(
    "line",
    [
        OLD,
        f"{OLD}  # alice",
        "sha256 Fingerprint=" + ":".join(OLD[at : at + 2] for at in range(0, 64, 2)).upper(),
    ],
)
def test_a_fingerprint_in_an_older_list_is_an_error_and_still_counts_while_a_server_runs(
    path: Path, line: str
):
    path.write_text(f"{ONE}\n{line}\n")
    with pytest.raises(
        UsageError, match=r"line 2 is the fingerprint .* revoke the certificate again"
    ):
        Revocations(path)
    path.write_text("")
    revocations = Revocations(path)
    path.write_text(f"{ONE}\n{line}\n")
    with capture_logs() as said:
        assert seen(revocations) == {ONE, OLD}
    assert "line 2 is the fingerprint" in said[0]["problem"]


def test_comments_may_be_in_any_language(path: Path):
    path.write_text(f"{ONE}  # J\u00fcrgen\n{TWO}\n", "utf-8")
    assert Revocations(path).all == {ONE, TWO}


def test_a_revocation_is_final(path: Path):
    path.touch()
    revocations = Revocations(path)
    assert not revocations.all
    path.write_text(ONE)
    assert seen(revocations) == {ONE}
    path.write_text(TWO)
    assert seen(revocations) == {ONE, TWO}


def test_a_list_that_disappears_takes_nothing_back_and_its_absence_is_logged(path: Path):
    path.write_text(ONE)
    revocations = Revocations(path)
    path.unlink()
    with capture_logs() as said:
        assert seen(revocations) == seen(revocations) == {ONE}
    [line] = said
    assert line["log_level"] == "error"
    assert line["problem"].startswith(f"there is no {path}: ")
    path.write_text(TWO)
    assert seen(revocations) == {ONE, TWO}


def test_a_list_that_is_half_written_counts_as_far_as_it_goes(path: Path):
    path.touch()
    revocations = Revocations(path)
    path.write_text(f"{ONE}\n{TWO[:20]}")
    with capture_logs() as said:
        assert seen(revocations) == seen(revocations) == {ONE}
    [line] = said
    assert "line 2 is neither a comment nor tbs: and a SHA-256" in line["problem"]
    path.write_text(f"{ONE}\n{TWO}\n")
    assert seen(revocations) == {ONE, TWO}


def test_a_controller_does_not_start_with_a_list_that_it_cannot_read(tmp_path: Path):
    make(tmp_path, [])
    (tmp_path / tls.REVOKED).write_text("alice\n")
    with pytest.raises(UsageError, match=r"revoked.txt: line 1 is neither a comment nor tbs:"):
        ControllerServer("127.0.0.1:0", tls.load(tmp_path, tls.CONTROLLER))


def servers(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what starts each server that asks for certificates, with those of a folder."""
    switch = tls.certificate_path(folder, tls.SWITCH), tls.key_path(folder, tls.SWITCH)
    return {
        "controller": lambda: ControllerServer("127.0.0.1:0", tls.load(folder, tls.CONTROLLER)),
        "switch": TlsFiles(*switch, folder / "ca.pem", client_auth=True).revocations,
        "parameter server": lambda: ServerTls(folder),
    }


@pytest.mark.parametrize("name", servers(Path()))
def test_no_server_starts_without_the_list(name: str, tmp_path: Path):
    make(tmp_path, [])
    (tmp_path / tls.REVOKED).unlink()
    with pytest.raises(
        UsageError, match=r"there is no .*revoked.txt: .* an empty file revokes none"
    ):
        servers(tmp_path)[name]()


def test_renewal_keeps_the_list(tmp_path: Path):
    make(tmp_path, [])
    assert (tmp_path / tls.REVOKED).read_text() == ""
    (tmp_path / tls.REVOKED).write_text(ONE)
    make(tmp_path, [])
    assert (tmp_path / tls.REVOKED).read_text() == ONE


def test_all_certificates_of_a_name_are_revoked_and_later_ones_are_not(tmp_path: Path):
    make(tmp_path, [])
    found = []
    for _ in range(3):
        own = issue(tmp_path, "alice", [tls.USER, tls.WORKER])
        found += [
            signed_part_of_pem((own / f"{role}.pem").read_text()) for role in ("user", "worker")
        ]
        if len(found) == 4:
            assert [each.certificate for each in revoke(tmp_path, "alice")] == found
            assert not revoke(tmp_path, "alice")
    assert Revocations(tmp_path / tls.REVOKED).all == {*found[:4]}
    assert [each.certificate for each in issued(tmp_path)][-6:] == found


def test_certificates_in_files_are_revoked_and_replace_their_fingerprints(tmp_path: Path):
    make(tmp_path, [])
    own = issue(tmp_path, "alice", [tls.USER, tls.WORKER])
    user, worker = (own / f"{role}.pem" for role in ("user", "worker"))
    (tmp_path / tls.REVOKED).write_text(f"{fingerprint(user.read_text())}  # alice\n{ONE}\n")
    assert revoke_files(tmp_path, [user, worker]) == [user, worker]
    assert not revoke_files(tmp_path, [user])
    names = {signed_part_of_pem(each.read_text()) for each in (user, worker)}
    assert Revocations(tmp_path / tls.REVOKED).all == {ONE, *names}
    with pytest.raises(UsageError, match=r"key.pem is not a certificate in PEM"):
        revoke_files(tmp_path, [own / "user-key.pem"])
    done = run("innet", "certificates", "revoke", str(tmp_path), "--certificate", str(user))
    assert (done.returncode, done.stderr) == (0, "")
    refuse("give a NAME, or files", "innet", "certificates", "revoke", str(tmp_path))


def state_of(name: str, folder: Path) -> str:
    """Return the state that the list of all certificates shows."""
    shown = run("innet", "certificates", "list", str(folder), COLUMNS="200").stdout
    [line] = (line for line in shown.splitlines() if f" {name} " in line)
    return line.strip("│ ").rpartition("│")[2].strip()


def test_a_name_in_an_older_record_is_revoked_if_its_files_are_there(tmp_path: Path):
    make(tmp_path, [])
    own = issue(tmp_path, "alice", [tls.USER])
    pem, record = (own / "user.pem").read_text(), tmp_path / RECORD
    older = record.read_text().replace(signed_part_of_pem(pem), fingerprint(pem))
    record.write_text(older)
    (tmp_path / tls.REVOKED).write_text(fingerprint(pem))
    assert state_of("alice", tmp_path) == "revoked"
    assert [each.certificate for each in revoke(tmp_path, "alice")] == [signed_part_of_pem(pem)]
    assert Revocations(tmp_path / tls.REVOKED).all == {signed_part_of_pem(pem)}
    assert state_of("alice", tmp_path) == "revoked"
    (own / "user.pem").unlink()
    assert state_of("alice", tmp_path) == "unknown"
    with pytest.raises(
        UsageError, match=r"only the fingerprint .* give the file with --certificate"
    ):
        revoke(tmp_path, "alice")


def test_every_encoding_of_a_certificate_has_one_name(tmp_path: Path):
    make(tmp_path, [])
    pem = (tmp_path / "worker.pem").read_text()
    der = ssl.PEM_cert_to_DER_cert(pem)
    other = ssl.PEM_cert_to_DER_cert(with_other_signature(pem))
    content = der[4:]  # behind the head of the outer sequence
    assert der[:2] == b"\x30\x82"
    same = [
        der,
        other,
        der + b"\0\0",
        b"\x30\x83\0" + der[2:4] + content,
        b"\x30\x80" + content + b"\0\0",
    ]
    assert {signed_part(each) for each in same} == {signed_part_of_pem(pem)}
    assert signed_part(der[:40] + bytes([der[40] ^ 1]) + der[41:]) != signed_part(der)
    for bad in (b"", b"\x30", b"\x31" + der[1:], b"\x30\x80\x30\x80\0\0\0\0", b"\x30\x84\xff"):
        with pytest.raises(ValueError, match="this is no"):
            signed_part(bad)


def with_other_signature(pem: str) -> str:
    """Return a certificate with the other signature (r, n - s), which is as valid as (r, s)."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
    certificate = x509.load_pem_x509_certificate(pem.encode())
    r, s = decode_dss_signature(certificate.signature)
    signature = b"\0" + encode_dss_signature(r, order - s)
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    inner = certificate.tbs_certificate_bytes + algorithm + bytes([3, len(signature)]) + signature
    return ssl.DER_cert_to_PEM_cert(b"\x30\x82" + len(inner).to_bytes(2) + inner)


def test_what_is_issued_and_revoked_at_the_same_time_is_all_kept(tmp_path: Path):
    make(tmp_path, [])
    names = [f"worker-{number}" for number in range(16)]
    with futures.ThreadPoolExecutor(len(names)) as pool:
        [*pool.map(lambda name: issue(tmp_path, name, [tls.WORKER]), names)]
        assert {each.name for each in issued(tmp_path)} >= {*names}
        [*pool.map(lambda name: revoke(tmp_path, name), names)]
    assert len(Revocations(tmp_path / tls.REVOKED).all) == len(names)


@pytest.mark.parametrize("last", [ONE, f"{ONE}  # bob"])
def test_a_name_is_revoked_in_a_list_whose_last_line_does_not_end(tmp_path: Path, last: str):
    make(tmp_path, [])
    own = issue(tmp_path, "alice", [tls.USER])
    (tmp_path / tls.REVOKED).write_text(last)
    revoke(tmp_path, "alice")
    assert Revocations(tmp_path / tls.REVOKED).all == {
        ONE,
        signed_part_of_pem((own / "user.pem").read_text()),
    }


def test_the_commands_issue_show_and_revoke(tmp_path: Path):
    make(tmp_path, [])
    folder, own = str(tmp_path), tmp_path / "alice"
    done = run("innet", "certificates", "issue", folder, "alice", "--role", "user")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"in {own}" in done.stdout
    assert own.stat().st_mode & 0o777 == 0o700
    assert {each.name for each in own.iterdir()} == {"ca.pem", "user.pem", "user-key.pem"}
    done = run("innet", "certificates", "revoke", folder, "alice")
    assert done.stdout.startswith("revoked: alice, user, valid until ")
    shown = run("innet", "certificates", "list", folder, COLUMNS="200").stdout
    [line] = [line for line in shown.splitlines() if "alice" in line]
    assert "revoked" in line
    run("innet", "certificates", "issue", folder, "carol", "--role", "admin")
    done = run("innet", "certificates", "revoke", folder, "carol")
    assert "innet-switch has to find revoked.txt beside its certificate" in done.stdout
    refuse("no certificate was made for 'bob'", "innet", "certificates", "revoke", folder, "bob")


def test_what_cannot_be_issued_or_revoked_is_refused(tmp_path: Path):
    make(tmp_path, [])
    for name in ("", "../alice", "al ice", "worker", "controller", "a" * 65):
        with pytest.raises(UsageError, match="cannot be a name"):
            issue(tmp_path, name, [tls.USER])
    with pytest.raises(UsageError, match="'switch' is a server, and clients read no list"):
        revoke(tmp_path, "switch")
    with pytest.raises(UsageError, match=r"there is no .*issued.txt: name the folder in which"):
        revoke(tmp_path / "elsewhere", "alice")


@pytest.mark.parametrize("days", ["3000000", "9999999999"])
def test_certificates_that_would_outlive_the_calendar_are_not_made(tmp_path: Path, days: str):
    done = run("innet", "certificates", "make", str(tmp_path / "new"), "--days", days)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


# ---- a controller that runs on --------------------------------------------------------------------


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[SecuredRack]:
    with secured_rack(tmp_path / "tls") as made, made.serving():
        add_switch(made)
        yield made


def jobs(rack: SecuredRack, who: str) -> list[str]:
    with rack.client(who) as stub, translated("list"):
        return [job.name for job in stub.ListJobs(pb.ListJobsRequest()).jobs]


def test_the_next_call_of_a_revoked_user_is_refused_and_a_new_certificate_is_not(rack: SecuredRack):
    rack.create("alice", "train")
    with rack.client("alice") as stub:  # this connection was there before
        revoke(rack.folder, "alice")
        refused = pytest.raises(NotAuthorized, match=REFUSED)
        with capture_logs() as said, refused, translated("list"):
            stub.ListJobs(pb.ListJobsRequest())
    [line] = [each for each in said if each["event"] == "refused"]
    assert (line["who"], line["method"]) == ("alice (user)", "ListJobs")
    with pytest.raises(NotAuthorized, match=REFUSED):
        jobs(rack, "alice")
    assert jobs(rack, "bob") == []
    issue(rack.folder, "alice", [tls.USER])
    assert jobs(rack, "alice") == ["train"]


def test_a_revoked_user_is_refused_with_another_signature_in_its_certificate(rack: SecuredRack):
    revoke(rack.folder, "alice")
    path = rack.folder / "alice" / "user.pem"
    path.write_text(with_other_signature(path.read_text()))
    with pytest.raises(NotAuthorized, match=REFUSED):
        jobs(rack, "alice")


def test_a_revoked_worker_is_out_of_its_job_and_the_others_go_on(rack: SecuredRack):
    token = rack.create("root", "train", workers=2, min_workers=1)
    with contextlib.ExitStack() as stack:
        agents = [rack.join(name, "train", at, token) for at, name in enumerate(("alice", "bob"))]
        for each in agents:
            stack.callback(each.close)
        ones = np.ones(100, np.float32)
        for each in [each.submit(ones) for each in agents]:
            assert (each.result() == 1).all()
        revoke(rack.folder, "alice")
        with rack.client("root") as stub:
            get = pb.GetJobRequest(name="train")
            until(lambda: [*stub.GetJob(get).joined] == [1])
            [left] = stub.GetJob(get).departures
        assert (left.rank, left.reason) == (0, "its certificate has been revoked")
        with pytest.raises(AllReduceError, match=REFUSED):
            agents[0].all_reduce(ones)
        assert (agents[1].all_reduce(ones) == 1).all()
        with pytest.raises(NotAuthorized, match=REFUSED):
            rack.join("alice", "train", 0, token)
