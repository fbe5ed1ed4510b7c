"""Refusals of this machine's kernel to send or to receive packets, and what may lift them.

A firewall, a route or an interface refuses packets for as long as its state lasts, which nobody knows. So
a refused packet counts as lost: it is sent again, and the switch that does not get it is silent. Only an
error that means a wrong use of the socket is the program's own, and does not pass.
"""

import errno
import os

MISUSES = {
    errno.EBADF, errno.ENOTSOCK, errno.EFAULT, errno.ENOTCONN, errno.EDESTADDRREQ, errno.EISCONN,
    errno.EPIPE, errno.EAFNOSUPPORT, errno.EPROTOTYPE, errno.ENOSYS,
}  # fmt: skip
"""Errors that say that the socket is none, or is not used as such."""

NOT_OURS = {errno.EAGAIN, errno.ECONNREFUSED}
"""Errors of a send that no refusal of this kernel causes: a full queue, and the other end's answer."""

_ROUTE = "the route (`ip route get {ip}`)"
_INTERFACE = "the interface (`ip address`)"
_CHECKS = {
    errno.EPERM: "nftables or iptables",
    errno.EACCES: f"{_ROUTE}, nftables or iptables",
    errno.EINVAL: f"{_ROUTE} and {_INTERFACE}",
    errno.EHOSTUNREACH: _ROUTE,
    errno.ENETUNREACH: f"{_ROUTE} and {_INTERFACE}",
    errno.ENETDOWN: _INTERFACE,
    errno.ENODEV: _INTERFACE,
    errno.ENXIO: _INTERFACE,
    errno.EADDRNOTAVAIL: _INTERFACE,
    errno.ENOBUFS: "the queues (`tc -s qdisc`)",
    errno.ENOMEM: "the memory (`free`)",
}


def explanation(number: int, ip: str) -> str:
    """Return what refuses packets to `ip`, and what to check, or "" for the number 0 of no error."""
    if not number:
        return ""
    check = _CHECKS.get(number, f"{_ROUTE}, {_INTERFACE}, nftables or iptables").format(ip=ip)
    return f"this machine's kernel refuses to send: {os.strerror(number)}; check {check}"
