"""Another run of the tests of a worker's C code, compiled with sanitizers: any error ends it.

``python tests/sanitized_worker.py``, with the address sanitizer's library preloaded.
"""

import sys
from pathlib import Path

import pytest
from sanitizers import FLAGS, preload_no_further

from innet.host import fastpath
from innet.wire import batch

_TESTS = ("test_batch.py", "test_fastpath.py", "test_link.py")


def main() -> int:
    """Run the tests that use C."""
    preload_no_further()
    plain = fastpath.flags
    fastpath.flags = lambda: [*plain(), *FLAGS]
    batch.FLAGS = (*batch.FLAGS, *FLAGS)
    here = Path(__file__).parent
    others = "not sanitizers and not numpy and not no_compiled_steps"
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", others]
    return int(pytest.main([*options, *(str(here / name) for name in _TESTS)]))


if __name__ == "__main__":
    sys.exit(main())
