"""The fixtures that all tests share."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import preforked
import pytest
from hypothesis import settings
from p4runtime_client import Controller
from switches import Switch, running_switch
from tiny_programs import program

from innet.p4.artifacts import artifact
from innet.rpc.certificates import make

# Without a GPU, Triton's interpreter runs its kernels. Triton has to know this before it is
# imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Several test processes share the processors: threads of PyTorch that wait for each other only take time
# from the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs and their children ignore Ctrl-C, but the tests send it to their
# processes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every run uses the same examples, and none fails because the machine is busy.
settings.register_profile("innet", deadline=None, derandomize=True)
settings.load_profile("innet")


def pytest_configure() -> None:
    """Share the processes that fork others with those that pytest-xdist starts."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        preforked.share()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without a search for garbage, since all that is imported stays."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the files that take longest first, so that none of them is left alone at the end."""
    files = Path(__file__).with_name("slow.txt").read_text().split()
    rank = {Path(__file__).parent.parent / name: number for number, name in enumerate(files)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    """Start a switch with one port and no program."""
    with running_switch(1) as one:
        yield one


@pytest.fixture(scope="module")
def controller(switch: Switch) -> Iterator[Controller]:
    """Connect the primary controller of the switch."""
    with Controller(switch.address, 1) as primary:
        yield primary


@pytest.fixture
def router(controller: Controller) -> Controller:
    """Load the router, and return the primary controller."""
    controller.configure(program("router"))
    return controller


@pytest.fixture
def bridge(controller: Controller) -> Controller:
    """Load the aggregation program, and return the primary controller."""
    controller.configure(artifact(64))
    return controller


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Make valid certificates."""
    path = tmp_path_factory.mktemp("tls")
    make(path, [])
    return path


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Path:
    """Make valid certificates of other authorities."""
    path = tmp_path_factory.mktemp("foreign")
    make(path, [])
    return path
