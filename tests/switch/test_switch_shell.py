"""The unmodified p4runtime-shell, with all of its operations, against the switch."""

import subprocess
import sys

from paths import SUPPORT


def test_the_shell_does_its_whole_tutorial():
    script = SUPPORT / "shell_tutorial.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
