"""Warnings about certificates that end soon: that of this process, and the controller's."""

from collections.abc import Iterator
from pathlib import Path

from innet.observe.findings import Finding, warning
from innet.rpc import channels, tls
from innet.rpc.client import named

_RENEW = "make a new one, as with `innet certificates {}`"


def of_operator(address: str, folder: Path | None) -> Iterator[Finding]:
    """Yield the warnings for an operator's command that talks to the controller at `address`."""
    if folder:
        identity = tls.load_operator(folder)
        yield from of_owner(identity)
        yield from of_controller(address, identity)


def of_owner(identity: tls.Identity) -> Iterator[Finding]:
    """Yield a warning if the identity's own certificate ends soon."""
    if tls.ends_soon(identity.expires):
        statement = f"the certificate {identity.certificate} ends on {identity.expires:%Y-%m-%d}"
        yield warning(
            "certificates", statement, _RENEW.format("make` or `innet certificates issue")
        )


def of_controller(address: str, identity: tls.Identity) -> Iterator[Finding]:
    """Yield a warning if the controller's certificate ends soon."""
    for each in named(address):  # a stand-by controller does not answer
        ends = channels.server_expiry(each, identity)
        if ends and tls.ends_soon(ends):
            statement = f"the certificate of the controller at {each} ends on {ends:%Y-%m-%d}"
            yield warning("controller", statement, _RENEW.format("make"))
