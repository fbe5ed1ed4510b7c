"""The identity of this machine."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what tells this machine from all others until it starts again, or "" if nothing does."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
