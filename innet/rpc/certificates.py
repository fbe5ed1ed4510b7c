"""Certificates for development: two authorities, and certificates for roles, users and workers.

BMv2 trusts one authority, and every client with a certificate of this authority can program it. A second
authority, which only the controller trusts, therefore signs the certificates of workers, users and
observers. So none of them can program a switch.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from innet.errors import UsageError
from innet.machine.private import read_secret
from innet.machine.replaced_file import replace_file
from innet.rpc import tls
from innet.rpc.issued import Issued, record, unwritable
from innet.rpc.revocation import signed_part

YEAR = timedelta(days=365)
LOOPBACK = ("localhost", "127.0.0.1", "::1")

_AUTHORITY_VALID = 10 * YEAR
_CLOCKS_DIFFER = timedelta(hours=1)  # between the machines that make and use a certificate
_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class _Kind:
    """The contents of a role's certificate, and the authority that signs it."""

    role: str
    authority: str
    usages: tuple[x509.ObjectIdentifier, ...]


_KINDS = (
    _Kind(tls.CONTROLLER, tls.AUTHORITY, (_SERVER, _CLIENT)),
    _Kind(tls.SWITCH, tls.AUTHORITY, (_SERVER,)),
    _Kind(tls.ADMIN, tls.AUTHORITY, (_CLIENT,)),
    _Kind(tls.WORKER, tls.WORKERS_AUTHORITY, (_CLIENT,)),
)
_PERSONAL = {
    kind.role: kind
    for kind in (
        *_KINDS[2:],
        _Kind(tls.USER, tls.WORKERS_AUTHORITY, (_CLIENT,)),
        _Kind(tls.OBSERVER, tls.WORKERS_AUTHORITY, (_CLIENT,)),
    )
}
PERSONAL_ROLES = tuple(_PERSONAL)
"""The roles for which :func:`issue` makes certificates."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Made:
    """The result of :func:`make`.

    `new` tells whether the authorities are new. `hosts` are the names and addresses in the servers'
    certificates.
    """

    new: bool
    hosts: list[str]


def make(
    folder: Path, hosts: Sequence[str], valid: timedelta = YEAR, *, force: bool = False
) -> Made:
    """Make a certificate and a private key for every role, in `folder`.

    `hosts` are names and IP addresses of the controller and the switches. Loopback is always added.
    Authorities that the folder has already are used again. The new certificates then cover the old hosts
    and the new ones, and the old certificates stay valid. `force` makes new authorities.

    Raises UsageError if the folder cannot be written, or its authorities cannot be used.
    """
    names = (tls.AUTHORITY, tls.WORKERS_AUTHORITY)
    parts = [path(folder, name) for name in names for path in (tls.certificate_path, tls.key_path)]
    new = force or not any(part.exists() for part in parts)
    known = [] if new else _hosts_of(tls.certificate_path(folder, tls.CONTROLLER))
    hosts = list(dict.fromkeys([*known, *hosts, *LOOPBACK]))
    subjects = [_general_name(host) for host in hosts]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authorities = {
            name: _new_authority(folder, name) if new else _load_authority(folder, name)
            for name in names
        }
        made = [
            _sign(
                folder,
                kind,
                kind.role,
                f"innet {kind.role}",
                authorities[kind.authority],
                valid,
                subjects,
            )
            for kind in _KINDS
        ]
        record(folder, made)
        (folder / tls.REVOKED).touch(0o644)  # servers do not start without it
    except OSError as problem:
        raise unwritable(folder, problem) from None
    return Made(new, hosts)


def issue(folder: Path, name: str, roles: Sequence[str], valid: timedelta = YEAR) -> Path:
    """Make certificates for one person or machine, with the authorities of `folder`.

    Return the new folder ``FOLDER/NAME``, with all files that the owner needs. `roles` are some of
    `PERSONAL_ROLES`. The certificates have `name` as their common name. Earlier ones stay valid.

    Raises UsageError for a wrong name, or if the folder cannot be used.
    """
    if not _NAME.fullmatch(name) or name in (*_PERSONAL, *tls.SERVERS):
        raise UsageError(
            f"{name!a} cannot be a name: use 1 to 64 letters, digits, '.', '_' and '-', the first of "
            "them a letter, a digit or '_', and not the name of a role"
        )
    kinds = [_PERSONAL[role] for role in roles]
    if not any(tls.certificate_path(folder, each.authority).exists() for each in kinds):
        raise UsageError(
            f"there are no authorities in {folder}: name the folder of `innet certificates make`"
        )
    authorities = {kind.authority: _load_authority(folder, kind.authority) for kind in kinds}
    own = folder / name
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        believed = tls.certificate_path(folder, tls.AUTHORITY).read_bytes()
        replace_file(tls.certificate_path(own, tls.AUTHORITY), believed, 0o644)
        made = [_sign(own, kind, name, name, authorities[kind.authority], valid) for kind in kinds]
        record(folder, made)
    except OSError as problem:
        raise unwritable(folder, problem) from None
    return own


def _new_authority(folder: Path, name: str) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"innet {name}")])
    certificate = (
        _builder(subject, subject, key.public_key(), key.public_key(), _AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _store(folder, name, certificate, key)
    return _Authority(certificate, key)


def _load_authority(folder: Path, name: str) -> _Authority:
    paths = tls.certificate_path(folder, name), tls.key_path(folder, name)
    try:
        certificate = x509.load_pem_x509_certificate(paths[0].read_bytes())
        key = serialization.load_pem_private_key(read_secret(paths[1]), password=None)
    except (OSError, ValueError, TypeError) as problem:
        raise UsageError(
            f"the authority {paths[0]} cannot sign: {problem}; give its key, or make a new one "
            "with --force, after which every machine needs new files"
        ) from None
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise UsageError(f"the authority {paths[0]} has expired: make a new one with --force")
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != certificate.public_key()
    ):
        raise UsageError(f"{paths[1]} is not the key of {paths[0]}")
    return _Authority(certificate, key)


def _sign(
    folder: Path,
    kind: _Kind,
    name: str,
    common_name: str,
    authority: _Authority,
    valid: timedelta,
    names: Sequence[x509.GeneralName] = (),
) -> Issued:
    """Make a key and a certificate in `folder`. Return the line for the record, with the name `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    role = x509.UniformResourceIdentifier(tls.role_uri(kind.role))
    reached_as = names if _SERVER in kind.usages else ()
    issuer = authority.certificate.subject
    certificate = (
        _builder(subject, issuer, key.public_key(), authority.key.public_key(), valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(kind.usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([role, *reached_as]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _store(folder, kind.role, certificate, key)
    listed = signed_part(certificate.public_bytes(serialization.Encoding.DER))
    return Issued(listed, name, kind.role, certificate.not_valid_after_utc)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    valid: timedelta,
) -> x509.CertificateBuilder:
    """Return a builder with the fields that all certificates have."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if re.fullmatch(r"[\w*-]+(\.[\w-]+)*", host, re.ASCII):
            return x509.DNSName(host)
    raise UsageError(f"host {host!r} is neither an IP address nor a host's name")


def _hosts_of(path: Path) -> list[str]:
    """Return the hosts that a certificate is for; none if there is no certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _store(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    replace_file(tls.key_path(folder, name), pem, 0o600)
    replace_file(
        tls.certificate_path(folder, name),
        certificate.public_bytes(serialization.Encoding.PEM),
        0o644,
    )
