"""The command lines of what a test has started."""

from contextlib import suppress

import psutil

from trimtab_sandbox.marks import marked


def command_lines(mark: str) -> dict[int, list[str]]:
    """Process id -> command line of the running processes with this mark."""
    found = {}
    for process in marked(mark):
        with suppress(psutil.Error):  # has ended, or is a zombie
            found[process.pid] = process.cmdline()
    return found
