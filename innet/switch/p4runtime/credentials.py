"""TLS for P4Runtime, with the files that simple_switch_grpc's options name."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from innet.errors import UsageError
from innet.rpc.revocation import Revocations
from innet.rpc.tls import REVOKED, check_key, server_credentials


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. With `client_auth`, a client needs a certificate of the `authority`."""

    certificate: Path
    key: Path
    authority: Path | None = None
    client_auth: bool = False

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for a gRPC server. Raises UsageError if a file is wrong.

        If the files are replaced while it serves, new connections use the new files.
        """
        if self.client_auth and not self.authority:
            raise UsageError("--grpc-server-with-client-auth needs --grpc-server-cacert")
        for path in filter(None, (self.key, self.certificate, self.authority)):
            _check_readable(path)
        check_key(self.key)
        self._check()
        authorities = [self.authority] if self.authority else []
        return server_credentials(self.certificate, self.key, authorities, ask=self.client_auth)

    def revocations(self) -> Revocations | None:
        """Return the revocation list beside the certificate, or None without `client_auth`.

        Raises UsageError if the list cannot be read.
        """
        return Revocations(self.certificate.with_name(REVOKED)) if self.client_auth else None

    def _check(self) -> None:
        """Raise UsageError for a wrong file, because gRPC does not name the problem."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, _no_password)
        except (ssl.SSLError, ValueError):
            raise UsageError(
                f"{self.certificate} and {self.key} are not a certificate in PEM and its key, "
                "readable without a password"
            ) from None
        if not self.authority:
            return
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError:
            raise UsageError(f"{self.authority} is not a certificate in PEM") from None


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None


def _no_password() -> str:
    raise ValueError
