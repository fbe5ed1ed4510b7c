"""An interpreter that a server forks: it starts soon, since the server has imported innet.

``python -ES forked_python.py ADDRESS EXECUTABLE PYTHON ARGUMENT...`` runs as ``python ARGUMENT...`` does,
with another `sys.executable`. It passes signals on, and ends as the forked process ends. `ADDRESS` is the
server's. With options that it does not know, a new interpreter runs.
"""

import os
import signal
import sys

from fork_server import Forked

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def _main(address: str, executable: str, python: str, *arguments: str) -> None:
    first, *_ = [each for each in arguments if each != "-u"] or [""]
    if not first or (first.startswith("-") and first not in ("-c", "-m")):
        os.execv(python, [python, *arguments])  # noqa: S606
    process = Forked(address, arguments, os.environ, executable=executable)
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: signal.pidfd_send_signal(process.pidfd, got))
    code = process.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
