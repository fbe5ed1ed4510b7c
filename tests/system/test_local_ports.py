"""Free ports of this machine, for the parts of a rack or a training."""

from itertools import islice
from pathlib import Path

import pytest

from innet.local import ports


@pytest.mark.parametrize("kernels", ["32768\t60999", "1024\t65535", "10000\t65535"])
def test_there_are_ports_whatever_the_kernel_chooses_its_own_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: str
):
    chosen = tmp_path / "ip_local_port_range"
    chosen.write_text(f"{kernels}\n")
    monkeypatch.setattr(ports, "_EPHEMERAL", chosen)
    found = set(islice(ports._own_ports.__wrapped__(0), 3))
    assert len(found) == 3
    assert all(10_000 <= port < 1 << 16 for port in found)
