"""Ends a sandbox whose owner is gone: `python -m trimtab_sandbox.guard MARK`, with a pipe from the owner.

When the owner ends, in whatever way, kill -9 included, the kernel closes the pipe; the guard then kills all that
carries the mark, unless the owner has written that it releases the sandbox. (Linux can signal each child at its
parent's death, but not the children's children, and by "parent" it means the thread that started them.)
"""

import signal
import subprocess
import sys
from typing import BinaryIO

from trimtab_sandbox.marks import end_marked

RELEASE = b"release"
"""What the owner writes when its sandbox is to outlive it."""


def start_guard(mark: str) -> "subprocess.Popen[bytes]":
    """A guard of all that carries the mark, with this process as the owner."""
    command = [sys.executable, "-m", "trimtab_sandbox.guard", mark]
    # A session of its own: Ctrl-C in the owner's terminal must not reach it.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def main(mark: str, pipe: BinaryIO) -> int:
    """Wait for the owner's end; returns 0 when nothing of its sandbox lives any more, or when it is to live on."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if pipe.read() == RELEASE:
        return 0
    return 1 if end_marked(mark) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.buffer))
