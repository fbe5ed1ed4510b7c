"""The unmodified p4runtime-shell, with all of its operations, against the switch."""

import subprocess

from paths import SUPPORT
from shells import shell_python
from switches import running_switch
from waiting import WITHIN


def test_the_shell_does_its_whole_tutorial():
    tutorial = [*shell_python(), str(SUPPORT / "shell_tutorial.py")]
    with running_switch(2, "--device-id", "3") as switch:
        ports = [host.fileno() for host in switch.hosts]
        done = subprocess.run(
            [*tutorial, switch.address, *map(str, ports)],
            pass_fds=ports, capture_output=True, text=True, timeout=WITHIN, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
