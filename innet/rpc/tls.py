"""Mutual TLS: a folder of PEM files with a process's certificate and the authorities that it trusts.

``ca.pem`` is the authority of controllers, switches and administrators. ``workers-ca.pem`` is the
authority of workers, users and observers; only the controller has it. ``ROLE.pem`` and
``ROLE-key.pem`` are a role's certificate and its key. A certificate names its role as the URI
``innet:ROLE`` among its subject alternative names. `innet certificates` makes all of these files; any
other authority can make them too.
"""

import contextlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc

from innet.errors import NotAuthorized, UsageError
from innet.machine.private import read_secret
from innet.rpc.renewal import Renewal

CONTROLLER, SWITCH, ADMIN, WORKER = "controller", "switch", "admin", "worker"
USER, OBSERVER = "user", "observer"
OPERATORS = (ADMIN, USER, OBSERVER)
"""The roles of people and programs that manage jobs or look at them, the most powerful first."""
AUTHORITY, WORKERS_AUTHORITY = "ca", "workers-ca"
INSECURE = "insecure:"
"""Prefix of a switch's address: use no TLS, although the controller has certificates."""

SERVERS = (CONTROLLER, SWITCH)
REVOKED = "revoked.txt"
RENEWAL_PERIOD = timedelta(days=14)
"""A certificate that expires within this time should be renewed."""
_URI = "innet:"
# From OpenSSL's x509_vfy.h.
_EXPIRED, _OTHER_NAME, _OTHER_IP = 10, 62, 64


def certificate_path(folder: Path, name: str) -> Path:
    """Return the path of a role's or an authority's certificate."""
    return folder / f"{name}.pem"


def key_path(folder: Path, name: str) -> Path:
    """Return the path of a role's or an authority's private key."""
    return folder / f"{name}-key.pem"


def authorities(folder: Path, role: str) -> list[Path]:
    """Return the certificates of the authorities that a role trusts.

    The controller trusts both authorities, every other role only the first.
    """
    names = [AUTHORITY, WORKERS_AUTHORITY] if role == CONTROLLER else [AUTHORITY]
    return [certificate_path(folder, name) for name in names]


def files(folder: Path, role: str) -> list[Path]:
    """Return all files of a folder with certificates and keys that a role needs."""
    return [*authorities(folder, role), certificate_path(folder, role), key_path(folder, role)]


def role_uri(role: str) -> str:
    """Return a role's URI, as certificates have it."""
    return _URI + role


def roles(auth_context: Mapping[str, Any]) -> list[str]:
    """Return a client's roles, from gRPC's ``ServicerContext.auth_context()``."""
    uris = [uri.decode(errors="replace") for uri in auth_context.get("peer_uri", ())]
    return [uri.removeprefix(_URI) for uri in uris if uri.startswith(_URI)]


def name(auth_context: Mapping[str, Any]) -> str:
    """Return the common name in a client's certificate, or "", from gRPC's ``auth_context()``."""
    names = [each.decode(errors="replace") for each in auth_context.get("x509_common_name", ())]
    return names[0] if names else ""


def shown_to(connection: ssl.SSLObject | ssl.SSLSocket) -> dict[str, list[bytes]]:
    """Return a client's certificate as gRPC's ``auth_context()`` has it, from any TLS connection.

    The connection has verified the certificate. Without one, the result is empty.
    """
    der, fields = connection.getpeercert(binary_form=True), connection.getpeercert() or {}
    if not der:
        return {}
    uris = [uri for kind, uri in _pairs(fields.get("subjectAltName")) if kind == "URI"]
    subject = [pair for names in fields.get("subject", ()) for pair in _pairs(names)]
    common_names = [value for kind, value in subject if kind == "commonName"]
    return {
        "x509_pem_cert": [ssl.DER_cert_to_PEM_cert(der).encode()],
        "peer_uri": [uri.encode() for uri in uris],
        "x509_common_name": [each.encode() for each in common_names],
    }


def _pairs(found: Any) -> list[tuple[str, str]]:
    return [(str(kind), str(value)) for kind, value in found or ()]


@dataclass(frozen=True)
class Identity:
    """The files that identify a process, and when its certificate expires.

    A server accepts clients of all `authorities`, a client only servers of the first. The files are read
    when they are needed.
    """

    certificate: Path
    key: Path
    authorities: tuple[Path, ...]
    expires: datetime

    @property
    def revoked(self) -> Path:
        """Return the path of the list of certificates that a server refuses."""
        return self.certificate.with_name(REVOKED)

    def distrust(self, problem: ssl.SSLCertVerificationError, host: str) -> str:
        """Return why the certificate of a server at `host` is not trusted, and a remedy.

        The text completes a sentence that begins with the server.
        """
        if problem.verify_code == _EXPIRED:
            return "has a certificate that has expired: make a new one, as with `innet certificates make`"
        if problem.verify_code in (_OTHER_NAME, _OTHER_IP):
            return (
                f"has a certificate for other names than {host}: make one for this name, "
                f"as with `innet certificates make FOLDER --host {host}`"
            )
        return (
            f"has a certificate that {self.authorities[0]} does not stand for "
            f"({problem.verify_message}): are both sides' files of the same authority?"
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a client. Raises UsageError if a file cannot be read."""
        paths = self.authorities[0], self.key, self.certificate
        return grpc.ssl_channel_credentials(*map(_readable, paths))

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a server that asks every client for a certificate.

        If the files are replaced while it serves, new connections use the new files.
        """
        return server_credentials(self.certificate, self.key, self.authorities, ask=True)

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context of a client that does not use gRPC."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.authorities[0])
        context.load_cert_chain(self.certificate, self.key)
        return context

    def server_context(self, *, ask: bool = True) -> ssl.SSLContext:
        """Return the TLS context of a server without gRPC. It may `ask` every client for a certificate.

        If the files are replaced while it serves, new connections use the new files.
        """

        def made() -> ssl.SSLContext:
            return _server_context(self.certificate, self.key, self.authorities, ask=ask)

        renewal = Renewal((self.key, self.certificate, *self.authorities), made)

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: object, _: object) -> None:
            renewal.look()
            connection.context = renewal.newest

        # OpenSSL calls it in every handshake, also if the client names no server.
        context = renewal.newest
        context.sni_callback = choose
        return context

    def renewed_expiry(self) -> datetime:
        """Return when the certificate that the file has now expires.

        Raises UsageError or NotAuthorized if it cannot be used.
        """
        return _expiry(self.certificate, self.key, server=True)


def load(folder: Path, role: str) -> Identity:
    """Check the files of a folder for a role, and return the identity.

    Raises UsageError if a file is missing or is no certificate or key, and NotAuthorized if the
    certificate has expired or is not for the role's use.
    """
    for path in files(folder, role):
        _readable(path)
    check_key(key_path(folder, role))
    believed = authorities(folder, role)
    for path in believed:
        _check_authority(path)
    certificate, key = certificate_path(folder, role), key_path(folder, role)
    expires = _expiry(certificate, key, server=role in SERVERS)
    return Identity(certificate, key, tuple(believed), expires)


def ends_soon(expires: datetime) -> bool:
    """Return whether a certificate that expires then should be renewed now."""
    return expires - datetime.now(UTC) < RENEWAL_PERIOD


def load_operator(folder: Path) -> Identity:
    """Return the identity of the most powerful operator that a folder has a certificate of.

    Raises the errors of :func:`load`.
    """
    present = [role for role in OPERATORS if certificate_path(folder, role).exists()]
    return load(folder, present[0] if present else ADMIN)


def server_credentials(
    certificate: Path, key: Path, authorities: Sequence[Path], *, ask: bool
) -> grpc.ServerCredentials:
    """Return the credentials of a gRPC server, which may `ask` every client for a certificate.

    If the files are replaced while it serves, new connections use the new files. Raises OSError, also for
    files that are no certificates or keys, and UsageError for a key that others can read.
    """

    def made() -> Any:
        _server_context(certificate, key, authorities, ask=ask)  # gRPC would not name the problem
        trusted = b"\n".join(path.read_bytes() for path in authorities) or None
        pair = key.read_bytes(), certificate.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], trusted)

    renewal = Renewal((key, certificate, *authorities), made)
    return grpc.dynamic_ssl_server_credentials(
        renewal.newest,
        lambda: renewal.newest if renewal.look() else None,
        require_client_authentication=ask,
    )


def _server_context(
    certificate: Path, key: Path, authorities: Sequence[Path], *, ask: bool
) -> ssl.SSLContext:
    check_key(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A session that a client resumes is not verified again: not when its certificate has expired, and not
    # when its authority is trusted no more. TLS 1.3 has no sessions without tickets.
    context.minimum_version, context.num_tickets = ssl.TLSVersion.TLSv1_3, 0
    context.verify_mode = ssl.CERT_REQUIRED if ask else ssl.CERT_NONE
    for path in authorities:
        context.load_verify_locations(path)
    context.load_cert_chain(certificate, key)
    return context


def check_key(path: Path) -> None:
    """Raise UsageError if a private key cannot be read, or if others can."""
    try:
        read_secret(path, roots_group=True)
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None


def _readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"there is no {path}: copy it from where the certificates were made, "
            "or make some with `innet certificates make`"
        ) from None
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None


def _check_authority(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise UsageError(f"{path} is not a certificate in PEM") from None


def _expiry(certificate: Path, key: Path, *, server: bool) -> datetime:
    ends = str(_examine(certificate, key, server=server)["notAfter"])
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)


def _examine(certificate: Path, key: Path, *, server: bool) -> Mapping[str, object]:
    """Verify a certificate as a server's or a client's, and return its contents.

    OpenSSL verifies certificates only in a handshake. So this function makes a handshake with itself, and
    trusts the certificate as its own authority. What remains to be verified are its dates and its use.
    """
    ends = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]
    ends[1].check_hostname = False
    for end in ends:
        _show(end, certificate, key)
        end.verify_mode = ssl.CERT_NONE
    ends[server].verify_mode = ssl.CERT_REQUIRED
    ends[server].verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    ends[server].load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = [ends[0].wrap_bio(there, back, server_side=True), ends[1].wrap_bio(back, there)]
    try:
        for each in (1, 0, 1, 0):
            with contextlib.suppress(ssl.SSLWantReadError):
                talk[each].do_handshake()
    except ssl.SSLCertVerificationError as problem:
        raise NotAuthorized(
            f"{certificate} cannot be used: {problem.verify_message}; make a new one, "
            "as with `innet certificates make`"
        ) from None
    return talk[server].getpeercert() or {}


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def refuse() -> str:
        raise UsageError(f"{key} is encrypted: a key has to be readable without a password")

    try:
        context.load_cert_chain(certificate, key, refuse)
    except ssl.SSLError:
        raise UsageError(f"{certificate} and {key} are no certificate in PEM and its key") from None
    except OSError as problem:
        raise UsageError(f"cannot read {certificate} or {key}: {problem.strerror}") from None
