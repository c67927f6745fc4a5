"""Ends a sandbox whose owner is gone: `python -m trimtab_controller.sandbox.guard MARK`, with a pipe from the owner.

The owner never writes. When it ends, in whatever way, kill -9 included, the kernel closes the pipe; the guard then
kills all that carries the mark. (Linux can signal each child at its parent's death, but not the children's children,
and by "parent" it means the thread that started them.)
"""

import signal
import sys

from trimtab_controller.sandbox.marks import end_marked


def main(mark: str) -> int:
    """Wait for the owner's end; returns 0 when nothing of its sandbox lives any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    return 1 if end_marked(mark) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
