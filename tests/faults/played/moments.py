"""When a fault strikes: each moment is brought about on a stage, and names whom it concerns.

A moment is a context: it is reached when the block begins, and what it has set going is brought to its end afterwards.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from flights.steered_run import RunError
from tests.faults.played.rounds import Load, Tap, tapped
from tests.faults.played.stage import Stage
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.configuration import host_name

HANDOVER_LIMIT_S = 20.0
STOPPED_LIMIT_S = 180.0
"""From the end of a fault to the end of the scale-in that it struck, or to the end of a start.

A controller that was killed starts its Spark anew.  Its first plan takes 26 s on a quiet machine
(`benchmarks.first_decision`), and took 97 s beside ten processes per core.  The rounds of the drain and the stop come
on top: beside eight processes per core 148 s in all, where an undisturbed drain took 50 s.
"""
SET_UP_LIMIT_S = 420.0
"""For each step by which a moment is reached, before anything is struck: a drain, a start, the first key groups of a
worker.  No promise says how long these take; beside ten processes per core a drain took over three minutes.
"""
BASELINE_S = 2.0
"""How long the placements so far may take to be read."""
NEW_APP = "new app"
FIRST_PLACEMENT = "first placement: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The worker that has the next thing to do, or any; `host` is where it is."""

    worker: str

    @property
    def index(self) -> int:
        """Its number."""
        return int(self.worker[1:])

    @property
    def host(self) -> str:
        """Its host, and the name of the agent there."""
        return host_name(self.index)


Reach = Callable[[Stage, Load, random.Random], AbstractContextManager[Target]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`means` says when that is; `in_round`: a round is under way; `stage`: only on a stage of this kind (`runs`)."""

    name: str
    means: str
    reach: Reach
    in_round: bool
    stage: str | None = None


MOMENTS: dict[str, Moment] = {}


def _moment(
    name: str, means: str, *, in_round: bool = True, stage: str | None = None
) -> Callable[[Callable[..., Iterator[Target]]], None]:
    def add(reach: Callable[..., Iterator[Target]]) -> None:
        MOMENTS[name] = Moment(name=name, means=means, reach=contextmanager(reach), in_round=in_round, stage=stage)

    return add


@_moment("idle", "no round, no window's end", in_round=False)
def _idle(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    _await_phase_of_window(stage, 0.4)
    yield Target(worker=chance.choice(stage.workers))


@_moment("window", "a window has just ended, its reports are on their way", in_round=False)
def _window(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    _await_phase_of_window(stage, 0.0)
    yield Target(worker=chance.choice(stage.workers))


@_moment("decided", "a plan is decided and not yet published")
def _decided(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    def begun(limit_s: float) -> bool | None:
        return stage.gate.reached_within(limit_s) or None

    stage.gate.close()
    try:
        load.provoke(begun)
        yield Target(worker=chance.choice(stage.workers))
    finally:
        stage.gate.open()


@_moment("prepare", "prepare is commanded, the new owner has not answered")
def _prepare(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    with tapped(stage.bootstrap, stage.cluster.topics.commands) as commands:
        yield _new_owner(_provoked(load, commands, CommandKind.PREPARE))


@_moment("prepared", "the new owner is prepared, release is not yet commanded")
def _prepared(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    with (
        tapped(stage.bootstrap, stage.cluster.topics.commands) as commands,
        tapped(stage.bootstrap, stage.cluster.topics.acks) as acks,
    ):
        prepare = _provoked(load, commands, CommandKind.PREPARE)
        if acks.first(partial(decoded, kind=Ack), lambda ack: ack.phase is Phase.PREPARED, HANDOVER_LIMIT_S) is None:
            raise RunError("nobody was prepared")
        yield _old_owner(prepare)


@_moment("release", "release is commanded, the old owner has not given away")
def _release(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    with tapped(stage.bootstrap, stage.cluster.topics.commands) as commands:
        yield _old_owner(_provoked(load, commands, CommandKind.RELEASE))


@_moment("released", "the old owner has given away, the new one has not taken")
def _released(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    with tapped(stage.bootstrap, stage.cluster.topics.handover) as handovers:

        def begun(limit_s: float) -> HandoverRecord | None:
            return handovers.first(
                partial(decoded, kind=HandoverRecord), lambda record: record.kind is HandoverKind.RELEASED, limit_s
            )

        yield Target(worker=str(load.provoke(begun).target))


@_moment("scale-in", "a worker is being drained, its first key groups are commanded away")
def _scale_in(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    drained = chance.choice(stage.workers)
    with tapped(stage.bootstrap, stage.cluster.topics.commands) as commands:
        stage.run.trimtab("drain", drained, "--reason", "a scale-in to be disturbed")
        if _next(commands, CommandKind.PREPARE, SET_UP_LIMIT_S) is None:
            raise RunError(f"the drain of {drained} led to no round")
    yield Target(worker=drained)
    _until_stopped(stage, drained)
    stage.run.trimtab("undrain", drained)
    _until_back(stage, drained)


@_moment("standby change", "a worker that is not drained is to become a standby, because another one is drained")
def _standby_change(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    drained = chance.choice(stage.workers)
    with tapped(stage.bootstrap, stage.cluster.topics.placement, whole=True) as placements:
        seen = Standbys(WorkerId(drained))
        placements.first(partial(decoded, kind=Placement), seen.note, BASELINE_S)
        stage.run.trimtab("drain", drained, "--reason", "a change of standbys to be disturbed")
        if placements.first(partial(decoded, kind=Placement), seen.note, SET_UP_LIMIT_S) is None or seen.added is None:
            raise RunError(f"the drain of {drained} changed no standbys of the others")
    yield Target(worker=str(seen.added))
    _until_stopped(stage, drained)
    stage.run.trimtab("undrain", drained)
    _until_back(stage, drained)


@_moment("scale-out", "a stopped worker is commanded to start, it has not joined the group")
def _scale_out(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    worker = chance.choice(stage.workers)
    with tapped(stage.bootstrap, stage.cluster.topics.commands) as commands:
        _stop_and_start(stage, worker, commands)
        yield Target(worker=worker)
    _until_back(stage, worker)


@_moment("restore", "a worker with an empty disk restores its first key groups")
def _restore(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    worker = chance.choice(stage.workers)
    with tapped(stage.bootstrap, stage.cluster.topics.commands) as commands:
        _stop_and_start(stage, worker, commands, empty=True)
        _until_back(stage, worker, SET_UP_LIMIT_S)

        def to_it(command: Command) -> bool:
            return command.kind is CommandKind.PREPARE and command.target == worker

        if commands.first(partial(decoded, kind=Command), to_it, SET_UP_LIMIT_S) is None:
            raise RunError(f"{worker} was given nothing after its start")
        yield Target(worker=worker)


@_moment(
    "first placement",
    "an app that has never run is placed, its standbys begin to follow",
    in_round=False,
    stage=NEW_APP,
)
def _first_placement(stage: Stage, load: Load, chance: random.Random) -> Iterator[Target]:
    stage.run.trimtab("resume")
    if not stage.holds_within(SET_UP_LIMIT_S, lambda: _is_placed_first(stage)):
        raise RunError("an app that has never run was not placed")
    yield Target(worker=chance.choice(stage.workers))


class Standbys:
    """Follows the placements, up to the first that adds a standby to a key group that is not about to move."""

    def __init__(self, drained: WorkerId) -> None:
        self.added: WorkerId | None = None
        self._drained = drained
        self._rows: dict[tuple[OperatorId, int], Owners] = {}

    def note(self, placement: Placement) -> bool:
        """Whether this placement does so, compared with the one before."""
        rows = {(operator, place): row for operator, each in placement.owners.items() for place, row in enumerate(each)}
        before, self._rows = self._rows, rows
        for key_group, row in rows.items():
            old = before.get(key_group, row)
            new = [worker for worker in row[1:] if worker not in old]
            if new and row[0] == old[0] != self._drained and self._drained in old:
                self.added = new[0]
                return True
        return False


def _stop_and_start(stage: Stage, worker: str, commands: Tap, *, empty: bool = False) -> None:
    """Drain a worker until it is stopped, and let the controller start it; `empty`: without its store."""
    stage.run.trimtab("drain", worker, "--reason", "to be started again")
    _until_stopped(stage, worker, SET_UP_LIMIT_S)
    if empty:
        for database in (stage.cluster.folder / worker).glob("**/*.db"):
            shutil.rmtree(database)
    stage.run.trimtab("undrain", worker)
    if _next(commands, CommandKind.START, SET_UP_LIMIT_S) is None:
        raise RunError(f"{worker} was not started after its drain was taken back")
    stage.kept.add(worker)


def _until_stopped(stage: Stage, drained: str, limit_s: float = STOPPED_LIMIT_S) -> None:
    """Wait until a drained worker has ended.  Raises RunError."""
    stage.cluster.child(drained).ended_here = True  # it ends because it is told to
    what = f"until {drained} was emptied and stopped"
    if not _comes_true(stage, limit_s, what, lambda: not stage.processes_of(drained)):
        stage.run.trimtab("undrain", drained)
        raise RunError(f"{drained} was not emptied and stopped within {limit_s:g} s")


def _until_back(stage: Stage, worker: str, limit_s: float = STOPPED_LIMIT_S) -> None:
    """Wait until a worker runs that the controller has started.  Raises RunError."""
    if not _comes_true(stage, limit_s, f"until {worker} was started again", lambda: _runs(stage, worker)):
        raise RunError(f"{worker} was not started again within {limit_s:g} s")
    stage.kept.add(worker)


def _comes_true(stage: Stage, limit_s: float, what: str, condition: Callable[[], bool]) -> bool:
    """Whether the condition came true in time; notes how long that took."""
    begun = time.monotonic()
    found = stage.holds_within(limit_s, condition)
    stage.took[what] = time.monotonic() - begun
    return found


def _await_phase_of_window(stage: Stage, phase: float) -> None:
    """Wait until this part of the present window has gone by."""
    window_s = stage.settings.window_s
    time.sleep((phase - time.time() / window_s) % 1.0 * window_s)


def _provoked(load: Load, commands: Tap, kind: CommandKind) -> Command:
    return load.provoke(lambda limit_s: _next(commands, kind, limit_s))


def _next(commands: Tap, kind: CommandKind, limit_s: float) -> Command | None:
    return commands.first(partial(decoded, kind=Command), lambda command: command.kind is kind, limit_s)


def _old_owner(command: Command) -> Target:
    return Target(worker=str(command.source))


def _new_owner(command: Command) -> Target:
    return Target(worker=str(command.target))


def _is_placed_first(stage: Stage) -> bool:
    status = stage.run.watch.last
    return status is not None and any(FIRST_PLACEMENT in row.text for row in status.decisions)


def _runs(stage: Stage, worker: str) -> bool:
    status = stage.run.watch.last
    nodes = status.nodes if status else ()
    return any(node.worker == worker and node.state is WorkerState.RUNNING for node in nodes)
