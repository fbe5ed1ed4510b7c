"""Authorization: what the role in a client's certificate allows.

An administrator may call every method. A user manages jobs of its own: it sees and deletes only those
that it has created. An observer sees everything and changes nothing. A worker may join jobs. The
controller's own certificate may only read. The web page of the controller, a separate process, uses it.
"""

from collections.abc import Mapping
from typing import Any

from innet.errors import NotAuthorized
from innet.rpc import tls

_READS = frozenset({"ListSwitches", "GetSwitch", "ListJobs", "GetJob", "GetJobHistory"})
_METHODS: Mapping[str, frozenset[str]] = {
    tls.USER: _READS | {"ListQuotas", "CreateJob", "DeleteJob"},
    tls.OBSERVER: _READS | {"ListQuotas"},
    tls.WORKER: frozenset({"Join", "CheckJoin"}),
}
_WORDS = {tls.USER: "a user", tls.OBSERVER: "an observer", tls.WORKER: "a worker"}
_LONGEST_NAME = 64  # as X.520 has it


def check_allowed(roles: list[str], method: str) -> None:
    """Raise NotAuthorized unless one of a client's `roles` allows `method`."""
    if tls.ADMIN in roles or (tls.CONTROLLER in roles and method in _READS):
        return
    if _allows(roles, method):
        return
    shown = f"the one shown is for: {', '.join(roles)}" if roles else "the one shown names no role"
    able = ["an administrator", *(_WORDS[role] for role in _METHODS if method in _METHODS[role])]
    raise NotAuthorized(f"{method} needs the certificate of {' or '.join(able)}, and {shown}")


def _allows(roles: list[str], method: str) -> bool:
    return any(method in _METHODS.get(role, ()) for role in roles)


def owner(shown: Mapping[str, Any]) -> str:
    """Return the owner of the jobs that a client creates: the name in its certificate, or ""."""
    name = tls.name(shown)
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else ""


def confined_to(shown: Mapping[str, Any], method: str) -> str | None:
    """Return the owner whose jobs alone a client may reach with `method`, or None for all jobs.

    Raises NotAuthorized if the client is a user without a usable name.
    """
    roles = tls.roles(shown)
    others = [role for role in roles if role != tls.USER]
    if tls.USER not in roles or tls.ADMIN in roles:
        return None
    if _allows(others, method):
        return None
    if name := owner(shown):
        return name
    raise NotAuthorized(
        f"a user's certificate needs a common name, of 1 to {_LONGEST_NAME} printable characters: "
        "jobs belong to names"
    )
