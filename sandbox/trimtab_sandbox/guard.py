"""A process that ends a sandbox when its owner is gone: `python -m trimtab_sandbox.guard MARK`.

It reads from a pipe that the owner holds open.  When the owner ends, even by kill -9, the kernel closes the pipe, and
the guard kills all processes with the mark, unless the owner has released the sandbox.  (Linux's parent-death signal
does not reach grandchildren, and follows the thread that started a child, not the process.)
"""

import signal
import subprocess
import sys
from typing import BinaryIO

from trimtab_sandbox.marks import end_marked

RELEASE = b"release"
"""Written by the owner to leave its sandbox running."""


def start_guard(mark: str) -> "subprocess.Popen[bytes]":
    """Start a guard for the processes with this mark; this process is their owner."""
    command = [sys.executable, "-m", "trimtab_sandbox.guard", mark]
    # A session of its own: Ctrl-C in the owner's terminal must not reach it.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def main(mark: str, pipe: BinaryIO) -> int:
    """Wait for the owner's end; returns 0 when the sandbox has ended or was released, else 1."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if pipe.read() == RELEASE:
        return 0
    return 1 if end_marked(mark) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.buffer))
