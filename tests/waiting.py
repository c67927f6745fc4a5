"""Wait in a test for what another thread or process does."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], told: Callable[[], object] = lambda: "it did not happen in time") -> None:
    """Until it is true; after a minute the test fails with what `told` says."""
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
