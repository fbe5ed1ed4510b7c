"""Probes of uplinks: a packet leaves by an uplink's port and tells where the link really ends."""

import contextlib
import threading

import structlog

from innet.controller.jobs.records import Attachment, Uplink
from innet.controller.state.inventory import Switch
from innet.controller.state.registry import Registry
from innet.errors import SwitchError

_WITHIN = 2.0
"""Seconds to wait for a probe."""

_log = structlog.get_logger("innet.controller")


class Probes:
    """The probes of all switches."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._arrived = threading.Condition(registry.lock)

    def send(self, switch: Switch) -> None:
        """Send a probe out of each of a switch's uplinks. Call it without the lock."""
        for link in switch.record.uplinks:
            with self._registry.lock:
                nonce = self._replace(switch.record.name, link)
            with contextlib.suppress(SwitchError):
                switch.supervisor.switch().probe(link, nonce)

    def wait(self, switch: Switch) -> None:
        """Wait a moment until the far end of every uplink is known. Call it with the lock."""
        self._arrived.wait_for(lambda: switch.probed, _WITHIN)

    def take(self, nonce: int, where: Attachment) -> bool:
        """Note where a probe has come out of the data plane. Return whether it was one."""
        probe = self._registry.probes.pop(nonce, None)
        if probe:
            self._note(*probe, where)
        return probe is not None

    def _replace(self, switch: str, link: Uplink) -> int:
        """Return the nonce of a new probe, and forget the last one of this uplink, which was lost."""
        probes = self._registry.probes
        for nonce in [nonce for nonce, each in probes.items() if each == (switch, link)]:
            del probes[nonce]
        nonce = self._registry.new_nonce()
        probes[nonce] = switch, link
        return nonce

    def _note(self, name: str, link: Uplink, where: Attachment) -> None:
        right = (where.switch, where.port) == (link.parent, link.parent_port)
        if switch := self._registry.switches.get(name):
            switch.found[link.port] = "" if right else f"port {where.port} of {where.switch}"
            self._arrived.notify_all()
        if not right:
            _log.warning(
                "a link is not where it was said to be", switch=name, port=link.port,
                said=f"port {link.parent_port} of {link.parent}",
                found=f"port {where.port} of {where.switch}",
            )  # fmt: skip
