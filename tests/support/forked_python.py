"""An interpreter that a server forks: it starts soon, since the server has imported PyTorch and innet.

``python -ES forked_python.py COMMANDS TRAININGS EXECUTABLE PYTHON ARGUMENT...`` runs as
``python ARGUMENT...`` does, with another `sys.executable`. It passes signals on, and ends as the forked
process ends. `COMMANDS` and `TRAININGS` are the addresses of servers. With options that it does not know,
a new interpreter runs.
"""

import os
import signal
import sys
from pathlib import Path

from fork_server import FLAGS, Forked

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_OF_INNET = ("from innet.cli import main; main()", "from innet.switch.cli import main; main()")
_NAMES = ("innet", "innet-switch")


def _main(commands: str, trainings: str, executable: str, python: str, *arguments: str) -> None:
    first, *rest = [each for each in arguments if each not in FLAGS] or [""]
    if not first or (first.startswith("-") and first not in ("-c", "-m")):
        os.execv(python, [python, *arguments])  # noqa: S606
    of_innet = Path(first).name in _NAMES or (first == "-c" and rest[0] in _OF_INNET)
    process = Forked(
        commands if of_innet else trainings, arguments, os.environ, executable=executable
    )
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: signal.pidfd_send_signal(process.pidfd, got))
    code = process.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
