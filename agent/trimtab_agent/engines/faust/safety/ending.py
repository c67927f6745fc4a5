"""Ends a worker that must not go on: nothing counts any more that its process does."""

import logging
import os
import threading

from trimtab_agent.engines.faust.safety.fence import Fence

log = logging.getLogger(__name__)

END_LIMIT_S = 15.0
"""How long a worker may take for an orderly stop after a fault; then its process is killed."""
EXIT_CODE = os.EX_SOFTWARE


def break_off(fence: Fence, complaint: str, *details: object) -> bool:
    """Fence this worker for good and tell why; whether it is the first fault.  Callable from any thread.

    The caller ends the worker.  If that takes too long, its process is killed.
    """
    if fence.broken:
        return False
    fence.break_off()
    log.critical(complaint, *details)
    end_process_after(END_LIMIT_S)
    return True


def end_process_after(limit_s: float) -> None:
    """Kill the process if an orderly stop takes too long: a fenced worker must not remain a member of its group."""

    def end() -> None:
        log.critical("this worker did not stop within %g s after its fault; killing the process", limit_s)
        os._exit(EXIT_CODE)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
