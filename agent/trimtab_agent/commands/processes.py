"""Starts, finds, stops and watches worker processes.  Each has its own session and outlives the agent."""

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from trimtab_agent.commands.events import ProcessEnded, ProcessId
from trimtab_agent.configuration import WorkerConfiguration
from trimtab_process.logs import fields
from trimtab_protocol.messages.names import WorkerId

log = logging.getLogger(__name__)

CLUSTER, WORKER, SOCKET = "TRIMTAB_CLUSTER", "TRIMTAB_WORKER", "TRIMTAB_SOCKET"
TRUST = "TRIMTAB_TRUST"
MAX_LOG_BYTES = 100_000_000
"""Size of the log of a worker that the agent has started; it shares a disk with the agent's journal."""
KEPT_LOG_BYTES = 10_000_000
"""How much of its end is kept."""


class WorkerProcesses:
    """The worker processes that the agent starts, stops or watches."""

    def __init__(self, *, cluster: str, socket: Path, logs: Path, trust: Path | None = None) -> None:
        self._environment = {CLUSTER: cluster, SOCKET: str(socket)}
        self._given = {TRUST: str(trust)} if trust is not None else {}
        self._logs = logs
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._watched: dict[WorkerId, ProcessId] = {}
        self._spoke: dict[WorkerId, ProcessId] = {}

    def ensure(self, worker: WorkerConfiguration) -> ProcessId:
        """Find the worker's process (it may run since before a restart of the agent) or start it.  Raises OSError."""
        process = self._find(worker.worker) or self._start(worker)
        self.watch(worker.worker, process)
        return process

    def watch(self, worker: WorkerId, process: ProcessId) -> None:
        """Let `ended` report the end of this process."""
        self._watched[worker] = process

    def connected(self, worker: WorkerId, process: ProcessId) -> None:
        """Watch a process that speaks for its worker: it is the worker itself, and no script that starts it."""
        self._spoke[worker] = process
        self.watch(worker, process)

    def terminate(self, worker: WorkerId, process: ProcessId) -> None:
        """Send SIGTERM if the pid still belongs to this process.  Raises OSError."""
        self.watch(worker, process)
        if self._lives(process):
            os.kill(process.pid, signal.SIGTERM)

    def ended(self) -> Iterator[ProcessEnded]:
        """Watched processes that ended since the last call.

        Reaps all children, also those whose worker has another process now.  Cuts logs that have become too long.
        """
        for worker in self._watched:
            _bound(self._logs / f"{worker}.log")
        exit_codes = {pid: code for pid, child in self._children.items() if (code := child.poll()) is not None}
        for pid in exit_codes:  # another process may get the same pid from now on
            del self._children[pid]
        for worker, process in list(self._watched.items()):
            try:
                lives = process.pid not in exit_codes and self._lives(process)
            except OSError:
                continue  # the process cannot be inspected now, which does not mean that it has ended
            if not lives:
                del self._watched[worker]
                exit_code = exit_codes.get(process.pid)
                if exit_code != 0 or self._spoke.get(worker) == process:  # else a script that has started the worker
                    self._end_the_rest(worker, process)
                yield ProcessEnded(worker=worker, process=process, exit_code=exit_code)

    def _end_the_rest(self, worker: WorkerId, ended: ProcessId) -> None:
        """Kill what a worker has left in its session, such as a pool of processes: nothing else would end it.

        It would be taken for the worker, which would never be started again.
        """
        for process in self._processes_of(worker):
            try:
                if process.pid != ended.pid and os.getsid(process.pid) == ended.pid:
                    log.warning(
                        "killing processes that a worker has left behind", **fields(worker=worker, pid=process.pid)
                    )
                    process.kill()
            except (psutil.Error, OSError):
                continue  # it has ended

    def _start(self, worker: WorkerConfiguration) -> ProcessId:
        own = {**self._environment, **self._given, WORKER: worker.worker}
        environment = {**os.environ, **own, **worker.environment}
        with open(self._logs / f"{worker.worker}.log", "ab", opener=_owner_only) as log:
            child = subprocess.Popen(
                worker.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return _identity(psutil.Process(child.pid))

    def _find(self, worker: WorkerId) -> ProcessId | None:
        """The oldest process with this worker's environment variables; its children inherit them.  None if none."""
        found = []
        for process in self._processes_of(worker):
            with contextlib.suppress(psutil.Error, OSError):  # it has ended
                found.append(_identity(process))
        return min(found, key=lambda process: process.created, default=None)

    def _processes_of(self, worker: WorkerId) -> Iterator[psutil.Process]:
        wanted = {**self._environment, WORKER: worker}
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and wanted.items() <= process.environ().items():
                    yield process
            except (psutil.Error, OSError):
                continue  # the process has ended, is a zombie, or belongs to another user

    def _lives(self, process: ProcessId) -> bool:
        """Whether the process runs or is a child not yet reaped.  Raises OSError if it cannot be inspected now."""
        return process.pid in self._children or identify(process.pid) == process


def _bound(log: Path) -> None:
    """Empty a log that is too long; its end is kept beside it.  The worker writes on: it appends."""
    try:
        size = log.stat().st_size
        if size > MAX_LOG_BYTES:
            with log.open("rb") as file:
                file.seek(size - KEPT_LOG_BYTES)
                kept = file.read(KEPT_LOG_BYTES)
            with open(log.with_suffix(".log.1"), "wb", opener=_owner_only) as before:
                before.write(kept)
            os.truncate(log, 0)
    except OSError:
        pass  # there is none, or the disk is full: then at the next look


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def identify(pid: int) -> ProcessId | None:
    """The living process with this pid; None if there is none.

    Raises OSError if it cannot be inspected now, for example without a free file descriptor.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return _identity(process)
    except psutil.Error:
        return None


def _identity(process: psutil.Process) -> ProcessId:
    """Identity of a process.  Setting the wall clock moves creation and boot time, but not their difference."""
    return ProcessId(pid=process.pid, created=round(process.create_time() - psutil.boot_time(), 2))
