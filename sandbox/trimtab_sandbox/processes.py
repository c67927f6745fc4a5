"""The processes of a sandbox.  Each has its own log; all are ended by id, however the sandbox ends."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trimtab_sandbox.guard import RELEASE, start_guard
from trimtab_sandbox.marks import bound, end_marked, marked, signal_process, with_mark

STOP_LIMIT_S = 15.0
"""A child that does not end within this time after SIGTERM is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """What a sandbox left behind: running processes and bound ports."""

    processes: int
    ports: int

    @property
    def nothing(self) -> bool:
        """Whether nothing was left behind."""
        return self.processes == 0 and self.ports == 0


class Child:
    """One child process, leader of its own session, with its output in its own log."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", *, log: Path, mark: str) -> None:
        self.name = name
        self.log = log
        self.ended_here = False
        """Whether this object stopped or killed it, so that its exit code says nothing about a failure."""
        self._process = process
        self._mark = mark

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the child runs."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        """Whether the child has not ended; also true for one stopped by SIGSTOP."""
        return self.exit_code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only, not to its children; does nothing when it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """`kill -9` this process only and wait for its end.  Its children run on, as after a crash."""
        self.ended_here = True
        self._process.kill()
        self._process.wait()

    def wait(self, limit_s: float) -> int:
        """Wait for the exit code, at most `limit_s` seconds.  Raises TimeoutError."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"{self.name} (pid {self.pid}) did not end within {limit_s:g} s, see {self.log}"
            ) from error

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """SIGTERM, wait, then SIGKILL the rest of its process group; returns the exit code."""
        self.terminate()
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        # The group outlives its leader.  Signal one by one: the id of an empty group may be reused.
        for process in marked(self._mark):
            if _group(process.pid) == self.pid:
                signal_process(process, signal.SIGKILL)
        return self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM, without waiting."""
        self.ended_here = True
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process does not handle SIGTERM


class Processes:
    """The processes of one sandbox.

    Leaving the context ends all of them, in reverse order of their start.  If the owner is killed, a guard process ends
    them.
    """

    def __init__(self, logs: Path) -> None:
        self.mark = f"sandbox-{uuid.uuid4().hex}"
        self.logs = logs
        self._children: list[Child] = []
        logs.mkdir(parents=True, exist_ok=True)
        self._guard: subprocess.Popen[bytes] | None = start_guard(self.mark)

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Child:
        """Start a child.  `environment` is added to the owner's; an existing log of this name is appended to."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=with_mark(self.mark, {**os.environ, **(environment or {})}),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child = Child(name, process, log=log, mark=self.mark)
        self._children.append(child)
        return child

    def left_over(self, ports: Iterable[int] = ()) -> LeftOver:
        """How many processes of this sandbox still run, and how many of these ports are still bound."""
        return LeftOver(processes=len(marked(self.mark)), ports=len(bound(ports)))

    def close(self) -> None:
        """End everything that was not released; may be called again."""
        if self._guard is None:
            return
        try:
            for child in reversed(self._children):
                child.stop()
        finally:
            end_marked(self.mark)
            self._dismiss_guard(b"")

    def release(self) -> None:
        """Leave everything running when the owner ends, until somebody calls `end_marked(mark)`."""
        self._dismiss_guard(RELEASE)

    def _dismiss_guard(self, word: bytes) -> None:
        if self._guard is not None:
            self._guard.communicate(word)
            self._guard = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
