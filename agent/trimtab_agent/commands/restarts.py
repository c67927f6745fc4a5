"""Keeps the workers running that a START command began: when a crashed one is started again, when the agent gives up.

Part of the command machine, and as passive.  What it knows is in the ledger, so it survives a restart of the agent.

A worker that ends with exit code 0, or by a signal with which people and service managers end processes, was ended on
purpose, as with systemd's `Restart=on-failure`.  Any other end is a crash, an unknown one too: of a process that
outlived an earlier agent, the exit code cannot be read.
"""

import signal
from collections.abc import Collection, Iterator
from dataclasses import replace

from trimtab_agent.commands.events import (
    MAX_DETAIL,
    Action,
    KeptNoted,
    KeptWorker,
    ProcessId,
    SayCrash,
    StartProcess,
    Write,
)
from trimtab_agent.commands.ledger import CommandLedger
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Absence

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 60.0
"""How long the agent waits after the first crash, and at most; the time doubles with each crash in a row."""
RAN_WELL_S = 600.0
"""The earlier crashes of a worker that has run for so long do not count.  Ten minutes, as in Kubernetes: most workers
need less to restore their state."""
CLEAN_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)


class Restarts:
    """The kept workers of a ledger, which follows the commands that start and stop them.

    `startable`: workers with a command line.
    """

    def __init__(self, ledger: CommandLedger, max_crashes: int, startable: frozenset[WorkerId]) -> None:
        self._ledger = ledger
        self._max_crashes = max_crashes
        self._startable = startable
        self._starting: set[WorkerId] = set()  # their processes have been asked for, and have not been seen yet
        self._crashed: set[WorkerId] = set()  # this agent saw them crash

    @property
    def given_up(self) -> frozenset[WorkerId]:
        """Crashed workers that the agent no longer starts by itself."""
        return frozenset(worker for worker, kept in self._ledger.kept.items() if kept.given_up)

    @property
    def due(self) -> dict[WorkerId, float]:
        """When to start crashed workers again (epoch seconds)."""
        if not self._ledger.kept:
            return {}
        told = {record.command.worker for record in self._ledger.open_kind(CommandKind.START)}
        busy = told | self._starting | self._ledger.processes.keys()
        return {
            worker: kept.at + backoff_s(kept.crashes)
            for worker, kept in self._ledger.kept.items()
            if not kept.given_up and worker not in busy
        }

    def absences(
        self, connected: Collection[WorkerId], *, just_started: bool
    ) -> dict[WorkerId, tuple[Absence, str | None]]:
        """The workers that can be started and are not connected: why, and what an operator must know of it.

        One whose process ends, or was left behind by a stop that took too long, is neither stopped nor starting.  Just
        after the start, workers may be about to connect again: then only those are listed that this agent saw crash.
        """
        found: dict[WorkerId, tuple[Absence, str | None]] = {}
        known = self._crashed if just_started else self._startable
        for worker in known.difference(connected):
            kept = self._ledger.kept.get(worker)
            if kept is not None:
                absence = Absence.CRASHED if kept.given_up else Absence.STARTING
                found[worker] = (absence, describe(kept))
            elif worker not in self._ledger.processes:
                found[worker] = (Absence.STOPPED, None)
        return found

    # --- what happens

    def resume(self) -> Iterator[Action]:
        """Begin again: try workers that had crashed too often, and forget failed starts, as the cause may be gone.

        Workers without a command line, too, are no longer kept.
        """
        for worker, kept in sorted(self._ledger.kept.items()):
            if worker not in self._startable or (kept.given_up and not kept.crashes):
                yield from self._keep(worker, None)
            elif kept.given_up:
                yield from self._keep(worker, KeptWorker(at=kept.at))

    def on_tick(self, now: float) -> Iterator[Action]:
        """Start the workers whose back-off is over; also if the clock was set back."""
        for worker, due_at in self.due.items():
            if now >= due_at or now < self._ledger.kept[worker].at:
                self._starting.add(worker)
                yield StartProcess(worker=worker)

    def started(self, now: float, worker: WorkerId) -> Iterator[Action]:
        """Note when a worker was started again."""
        kept = self._ledger.kept.get(worker)
        if worker in self._starting and kept is not None:
            yield from self._keep(worker, replace(kept, at=now))
        self._starting.discard(worker)

    def connected(self, now: float, worker: WorkerId, process: ProcessId | None) -> Iterator[Action]:
        """Take up a crashed worker that somebody else has started meanwhile, if its process can be watched."""
        kept = self._ledger.kept.get(worker)
        if kept is not None and worker not in self._ledger.processes:
            yield from self._keep(worker, replace(kept, at=now, given_up=False) if process else None)

    def ended(self, now: float, worker: WorkerId, exit_code: int | None) -> Iterator[Action]:
        """A worker's process ended, and no command had told it to."""
        if worker in self.given_up:
            return  # a start failed, and has said so
        if is_clean(exit_code):
            yield from self._keep(worker, None)
        else:
            yield from self._crash(now, worker, ending(exit_code))

    def not_started(self, now: float, worker: WorkerId, detail: str) -> Iterator[Action]:
        """A worker's process could not be started again."""
        if worker in self._starting:
            self._starting.discard(worker)
            yield from self._crash(now, worker, detail, ran=False)

    def start_failed(self, now: float, worker: WorkerId, detail: str) -> Iterator[Action]:
        """A START command failed: whoever sent it decides what is next."""
        kept = self._ledger.kept.get(worker)
        if kept is not None:
            yield from self._keep(worker, KeptWorker(at=now, detail=detail[:MAX_DETAIL], given_up=True))

    def _crash(self, now: float, worker: WorkerId, detail: str, *, ran: bool = True) -> Iterator[Action]:
        kept = self._ledger.kept.get(worker)
        if kept is not None and not kept.given_up:
            kept = after_crash(kept, now, detail, self._max_crashes, ran=ran)
            self._crashed.add(worker)
            yield from self._keep(worker, kept)
            yield SayCrash(worker=worker, kept=kept)

    def _keep(self, worker: WorkerId, kept: KeptWorker | None) -> Iterator[Action]:
        """Note what is known of a kept worker, if that is new."""
        if self._ledger.kept.get(worker) != kept:
            self._ledger.note_kept(worker, kept)
            yield Write(entry=KeptNoted(worker=worker, kept=kept))


def after_crash(kept: KeptWorker, now: float, detail: str, max_crashes: int, *, ran: bool = True) -> KeptWorker:
    """The worker after a crash at `now`; `ran` False: its process could not even be started."""
    earlier = 0 if ran and now - kept.at >= RAN_WELL_S else kept.crashes
    crashes = earlier + 1
    return KeptWorker(at=now, crashes=crashes, detail=detail[:MAX_DETAIL], given_up=crashes >= max_crashes)


def backoff_s(crashes: int) -> float:
    """How long to wait after so many crashes in a row."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(crashes - 1, 10)) if crashes else 0.0


def is_clean(exit_code: int | None) -> bool:
    """Whether a process ended on purpose.  `exit_code` as of `subprocess`: negative = the signal; None = unknown."""
    return exit_code == 0 or (exit_code is not None and -exit_code in CLEAN_SIGNALS)


def ending(exit_code: int | None) -> str:
    """How a process ended, in words."""
    if exit_code is None:
        return "unknown exit code"
    if -exit_code in set(signal.Signals):
        return f"exit code {exit_code} ({signal.Signals(-exit_code).name})"
    return f"exit code {exit_code}"


def describe(kept: KeptWorker) -> str | None:
    """What an operator must know of a kept worker; None = nothing."""
    if not kept.crashes:
        return f"its start failed: {kept.detail}" if kept.given_up else None
    times = "once" if kept.crashes == 1 else f"{kept.crashes} times in a row"
    then = "the agent no longer starts it" if kept.given_up else "the agent starts it again"
    return f"crashed {times}, {then}; last: {kept.detail}"
