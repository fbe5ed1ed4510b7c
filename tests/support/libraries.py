"""The environment with the libraries that some examples use, which `make libraries` makes."""

import os

import pytest
from paths import ROOT

_ENVIRONMENT = ROOT / ".venv-libs"
COMMANDS = _ENVIRONMENT / "bin"
SITE = list(_ENVIRONMENT.glob("lib/python*/site-packages"))
"""The folder of its packages, if there is one."""


def needs(*packages: str) -> None:
    """Skip the test, unless `make libraries` has installed these packages."""
    there = {path.name for path in _ENVIRONMENT.glob("lib/python*/site-packages/*")}
    if missing := {"shared.pth", *packages} - there:
        pytest.skip(f"{', '.join(sorted(missing))} is not installed: see `make libraries`")


QUIET = {
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",  # they have another environment than the training
}
"""Variables with which the libraries take few processes and processors, and look for no hub."""


def quiet() -> dict[str, str]:
    """Return this process's environment with these variables."""
    return {**os.environ, **QUIET}
