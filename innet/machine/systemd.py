"""Notifications to systemd, if it has started this process: the protocol of sd_notify(3)."""

import contextlib
import os
import socket

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str) -> None:
    """Send a state to systemd. Without ``NOTIFY_SOCKET``, or if nobody receives it, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        # systemd writes the zero byte of an abstract address as @.
        sender.sendto(state.encode(), "\0" * address.startswith("@") + address.removeprefix("@"))
