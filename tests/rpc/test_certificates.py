"""The folder of certificates: the files that `innet certificates` makes, and errors in them."""

import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from commands import refuse, run, run_on_full_disk
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import example, given, settings
from hypothesis import strategies as st

from innet.errors import InnetError, NotAuthorized, UsageError
from innet.rpc import tls
from innet.rpc.certificates import issue, make

ROLES = (tls.CONTROLLER, tls.SWITCH, tls.ADMIN, tls.WORKER)
EXPIRED = timedelta(seconds=-1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder with new certificates for one test."""
    make(tmp_path / "tls", ["rack.example", "10.0.0.7"])
    return tmp_path / "tls"


def certificate_of(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())


def contents(folder: Path, names: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(names)}


def test_private_keys_are_for_their_owner_only_also_after_they_were_renewed(folder: Path):
    for path in folder.glob("*-key.pem"):
        path.chmod(0o644)
    make(folder, [], force=True)
    keys = list(folder.glob("*-key.pem"))
    assert len(keys) == len(ROLES) + 2
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}


@pytest.mark.parametrize("role", ROLES)
def test_every_role_can_use_its_certificate(folder: Path, role: str):
    identity = tls.load(folder, role)
    found = certificate_of(folder, role)
    assert found.not_valid_after_utc == identity.expires
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"innet:{role}"]


def test_workers_certificates_are_of_an_authority_that_switches_do_not_believe(folder: Path):
    issuers = {}
    for role in ROLES:
        certificate = certificate_of(folder, role)
        issuers[role] = certificate.issuer
        authority = "workers-ca" if role == tls.WORKER else "ca"
        signer = certificate_of(folder, authority)
        certificate.verify_directly_issued_by(signer)
    assert issuers[tls.WORKER] != issuers[tls.ADMIN]
    assert tls.load(folder, tls.SWITCH).authorities == (folder / "ca.pem",)


def test_again_the_same_authorities_sign_new_certificates_for_the_same_hosts_and_more(folder: Path):
    authorities, all_before = contents(folder, "*ca*.pem"), contents(folder, "*.pem")
    made = make(folder, ["::2"])
    assert not made.new
    assert {"rack.example", "10.0.0.7", "::2", "localhost"} <= set(made.hosts)
    after = contents(folder, "*.pem")
    assert {name for name in after if after[name] == all_before[name]} == set(authorities)
    for role in ROLES:
        tls.load(folder, role)


def test_force_makes_new_authorities_for_the_named_hosts_only(folder: Path):
    before = contents(folder, "*.pem")
    made = make(folder, ["other.example"], force=True)
    assert made.new
    assert "rack.example" not in made.hosts
    after = contents(folder, "*.pem")
    assert not [name for name in after if after[name] == before[name]]


@pytest.mark.parametrize(
    "missing", ["ca.pem", "ca-key.pem", "workers-ca.pem", "workers-ca-key.pem"]
)
def test_an_authority_that_is_not_whole_is_not_overwritten(folder: Path, missing: str):
    (folder / missing).unlink()
    before = contents(folder, "*.pem")
    with pytest.raises(UsageError, match=r"cannot sign: .* make a new one with --force"):
        make(folder, [])
    assert contents(folder, "*.pem") == before


def test_a_folder_without_authorities_issues_nothing(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"there are no authorities in .*other: .*certificates make"
    ):
        issue(tmp_path / "other", "alice", [tls.WORKER])
    assert not [*tmp_path.iterdir()]


def test_a_key_of_another_authority_does_not_sign(folder: Path):
    shutil.copy(folder / "workers-ca-key.pem", folder / "ca-key.pem")
    with pytest.raises(UsageError, match=r"ca-key.pem is not the key of .*ca.pem"):
        make(folder, [])


@given(
    host=st.text(max_size=20).filter(lambda text: not re.fullmatch(r"[\w.*:-]+", text, re.ASCII))
)
@example(host="under..dots")
@example(host="rack.example.")
def test_what_is_no_host_is_refused_before_anything_is_made(tmp_path_factory, host: str):
    folder = tmp_path_factory.mktemp("tls")
    with pytest.raises(UsageError, match=re.escape(f"host {host!r} is neither an IP address nor")):
        make(folder, [host])
    assert not list(folder.iterdir())


@settings(max_examples=20)
@given(
    host=st.ip_addresses().map(str)
    | st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z]{2,9})?", fullmatch=True)
)
def test_a_host_is_in_the_servers_certificates(tmp_path_factory, host: str):
    folder = tmp_path_factory.mktemp("tls")
    make(folder, [host])
    for role in (tls.CONTROLLER, tls.SWITCH):
        certificate = certificate_of(folder, role)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = names.get_values_for_type(x509.IPAddress)
        assert host in [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def encrypt(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(*formats, secret))


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("file", "spoil", "why"),
    [
        ("ca.pem", Path.unlink, "there is no .*ca.pem: copy it from .* or make some with"),
        ("workers-ca.pem", Path.unlink, "there is no .*workers-ca.pem"),
        ("controller.pem", Path.unlink, "there is no .*controller.pem"),
        ("controller-key.pem", Path.unlink, "there is no .*controller-key.pem"),
        ("controller-key.pem", directory, "cannot read .*controller-key.pem: Is a directory"),
        ("ca.pem", lambda path: path.write_text("hello"), "ca.pem is not a certificate in PEM"),
        (
            "workers-ca.pem",
            lambda path: path.write_bytes(b""),
            "workers-ca.pem is not a certificate",
        ),
        (
            "controller.pem",
            lambda path: path.write_text("hello"),
            "no certificate in PEM and its key",
        ),
        ("controller-key.pem", lambda path: path.write_bytes(b""), "no certificate in PEM and its"),
        (
            "controller-key.pem",
            lambda path: shutil.copy(path.with_name("admin-key.pem"), path),
            "no certificate in PEM and its key",
        ),
        ("controller-key.pem", encrypt, "key.pem is encrypted: a key has to be readable without"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(folder: Path, file: str, spoil, why: str):
    spoil(folder / file)
    with pytest.raises(UsageError, match=why):
        tls.load(folder, tls.CONTROLLER)


@pytest.mark.parametrize("role", ROLES)
def test_an_expired_certificate_is_not_used(folder: Path, role: str):
    make(folder, [], EXPIRED)
    with pytest.raises(NotAuthorized, match=rf"{role}.pem cannot be used: certificate has expired"):
        tls.load(folder, role)


def test_a_certificate_for_another_use_is_not_used(folder: Path):
    for end in (".pem", "-key.pem"):
        shutil.copy(folder / f"admin{end}", folder / f"controller{end}")
    with pytest.raises(NotAuthorized, match="unsuitable certificate purpose"):
        tls.load(folder, tls.CONTROLLER)


def test_the_command_says_what_to_do_with_what_it_made(tmp_path: Path):
    folder = tmp_path / "tls"
    for first in ("new authorities in ", "the same authorities as before in "):
        done = run(
            "innet", "certificates", "make", str(folder), "--host", "10.0.0.7", "--days", "30"
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{first}{folder}\n")
        for word in ("30 days", "10.0.0.7", "--tls", "INNET_TLS", "--grpc-server-with-client-auth"):
            assert word in done.stdout
        for role in ROLES:
            assert all(path.name in done.stdout for path in tls.files(folder, role))
            tls.load(folder, role)


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path):
    (tmp_path / "file").touch()
    for folder, host, why in (
        (tmp_path / "file", "10.0.0.7", "cannot write .*file: File exists"),
        (tmp_path / "tls", "no host", "host 'no host' is neither an IP address nor a host's name"),
    ):
        refuse(why, "innet", "certificates", "make", str(folder), "--host", host)
    with pytest.raises(InnetError):
        tls.load(tmp_path / "tls", tls.WORKER)


def test_a_full_disk_is_an_error_that_names_the_folder(folder: Path):
    for command in (
        ["make", str(folder), "--host", "a"],
        ["issue", str(folder), "alice", "--role", "user"],
    ):
        done = run_on_full_disk("innet", "certificates", *command)
        assert (done.returncode, done.stderr) == (
            2,
            f"error: cannot write {folder}: File too large\n",
        )
