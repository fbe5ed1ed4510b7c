"""Waiting for a child that a process has forked."""

import os
import select
import signal

WITHIN = 30.0


def exit_code(child: int) -> int | str:
    """Return what a forked child ends with, or say that it does not end; then it is killed."""
    descriptor = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = poll.poll(WITHIN * 1000)
        if not ended:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(status) if ended else "it has not ended"
