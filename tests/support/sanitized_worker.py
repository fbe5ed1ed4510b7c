"""Another run of the tests of a worker's C code, compiled with sanitizers: any error ends it.

``python tests/support/sanitized_worker.py``, with the address sanitizer's library preloaded.
"""

import sys
from pathlib import Path

import pytest
from sanitizers import FLAGS, preload_no_further

from innet.host import fastpath
from innet.wire import batch

_TESTS = ("wire/test_batch.py", "host/test_fastpath.py", "host/test_link.py")


def main() -> int:
    """Run the tests that use C."""
    preload_no_further()
    fastpath.FLAGS = (*fastpath.FLAGS, *FLAGS)
    batch.FLAGS = (*batch.FLAGS, *FLAGS)
    tests = Path(__file__).parents[1]
    others = "not sanitizers and not numpy and not no_compiled_steps"
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", others]
    return int(pytest.main([*options, *(str(tests / name) for name in _TESTS)]))


if __name__ == "__main__":
    sys.exit(main())
