"""Compares the placement that a job began with and the one that it has now, in turn, so that both have the same load.

An operator's move changes the placement, as by `trimtab move`.  Of the two, the one that comes first in a turn changes.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from flights.watch import StatusWatch, read_snapshots
from jobs.outcome import Phase, Saturated
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.intents import write_intents
from trimtab_protocol.messages.intents import MoveKeyGroups, RequestedMove
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.settings.kafka import KafkaSettings
from trimtab_sandbox.cluster import SandboxCluster

LIMIT_S, SETTLE_S, WRITE_LIMIT_S = 120.0, 5.0, 10.0
ATTEMPTS = 3
REASON = "compare two placements"
Placed = dict[KeyGroup, WorkerId]
Either = TypeVar("Either", Placed, Phase)


class Run(Protocol):
    """What is needed of a job's run."""

    cluster: SandboxCluster
    watch: StatusWatch

    @property
    def say(self) -> Callable[[str], None]:
        """Takes a line of text."""

    def trimtab(self, *arguments: str) -> str:
        """Run a command of `trimtab`; returns what it prints."""

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait for the condition."""

    def in_flight(self) -> bool:
        """Whether a plan is being carried out."""

    def measure(self, seconds: float) -> Phase:
        """What is measured over the next seconds."""

    def saturate(self) -> Saturated:
        """What a burst shows."""

    def rest(self, seconds: float) -> None:
        """Wait, and check that everything runs."""


def _newest(run: Run) -> Snapshot:
    return read_snapshots(run.cluster.broker.address, run.cluster.topics)[-1]


def placed(run: Run) -> Placed:
    """The owners of all key groups in the newest window."""
    return {row.key_group: row.worker for row in _newest(run).key_groups}


def alternated(run: Run, first: Placed, turns: int, seconds: float) -> tuple[tuple[Phase, Phase], ...]:
    """Per turn what was measured with the placement `first` and with the present one.  The controller is paused."""
    last, found = placed(run), []
    for turn in range(turns):
        measured = []
        for wanted in order_of(turn, first, last):
            _put(run, wanted)
            run.rest(SETTLE_S)
            phase = run.measure(seconds)
            measured.append(replace(phase, saturated=run.saturate()))
            run.say(f"turn {turn + 1}, {'first' if wanted == first else 'last'} placement: {measured[-1]}")
        found.append(order_of(turn, *measured))
    return tuple(found)


def order_of(turn: int, first: Either, last: Either) -> tuple[Either, Either]:
    """Both in the order of this turn; once more, and they are in the order in which they were given."""
    return (first, last) if turn % 2 == 0 else (last, first)


def moves_to(wanted: Placed, now: Placed) -> tuple[RequestedMove, ...]:
    """What has to move."""
    return tuple(RequestedMove(key_group=each, worker=to) for each, to in sorted(wanted.items()) if now.get(each) != to)


def _put(run: Run, wanted: Placed) -> None:
    """Move key groups by hand.  The controller may make a plan of its own before it pauses again; then once more."""
    for _ in range(ATTEMPTS):
        moves = moves_to(wanted, placed(run))
        if not moves:
            return
        _move(run, moves)
    run.until(lambda: placed(run) == wanted, LIMIT_S, "key groups have changed places")


def _move(run: Run, moves: tuple[RequestedMove, ...]) -> None:
    """Move key groups in one plan: it comes first when the controller goes on, which then pauses again."""
    connection = Connection(kafka=KafkaSettings(bootstrap_servers=run.cluster.broker.address))
    wish = MoveKeyGroups(moves=moves, by="jobs", at=time.time(), reason=REASON)
    write_intents(connection, run.cluster.topics, [(wish.key, wish)], limit_s=WRITE_LIMIT_S)
    rounds = len(run.watch.rounds)
    run.trimtab("resume")
    # A plan of half a second may begin and end between two looks.
    run.until(lambda: run.in_flight() or len(run.watch.rounds) > rounds, LIMIT_S, f"{len(moves)} key groups move")
    run.trimtab("pause", "--reason", REASON)
    run.until(lambda: not run.in_flight(), LIMIT_S, f"the move of {len(moves)} key groups ends")
    ended_ms = 1000.0 * time.time()
    run.until(lambda: _newest(run).start_ms >= ended_ms, LIMIT_S, f"a window after the move of {len(moves)} key groups")
