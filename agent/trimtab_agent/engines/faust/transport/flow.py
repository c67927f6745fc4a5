"""Faust's flow control: what waits in its queues while the flow is open stays there."""

from collections.abc import Callable
from typing import Any


def keep_what_waits(flow_control: Any) -> None:
    """Let `resume()` change nothing while the flow is open (patch standby-records-kept).

    Each call empties all queues.  Faust calls it up to three times for an assignment, the last time when it already
    reads the changelogs of its standbys.  The first call drops what the assignment before has left, and is enough: the
    consumer suspends the flow before every assignment.
    """
    resume: Callable[[], None] = flow_control.resume

    def resume_if_suspended() -> None:
        if flow_control._suspend.is_set():
            resume()

    flow_control.resume = resume_if_suspended
