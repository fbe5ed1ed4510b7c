"""A rack on this machine whose switch and controller start soon (see :mod:`preforked`).

Nobody can pass SIGKILL on. So a killed switch or controller ends only when the process that has forked
it notices. Use :func:`innet.local.rack.local_rack` to kill one of them.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from preforked import forked_programs

from innet.local import processes, rack


@contextlib.contextmanager
def forked_rack(workers: int, **options: Any) -> Iterator[rack.Rack]:
    """Run :func:`innet.local.rack.local_rack` with these options."""
    python = str(forked_programs() / "python")
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rack, "command", lambda module: [python, *processes.command(module)[1:]])
            running = stack.enter_context(rack.local_rack(workers, **options))
        yield running
