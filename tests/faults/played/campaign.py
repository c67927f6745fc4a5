"""Plays cells on a stage, one after the other, and sees what is said of each."""

import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from flights.readback import read_topic
from tests.faults.played.cells import Cell
from tests.faults.played.halt import Halt, Interrupted
from tests.faults.played.moments import Target
from tests.faults.played.rounds import Load, tapped
from tests.faults.played.said import Ear, unsaid
from tests.faults.played.stage import Stage
from tests.faults.recorded.history import Strike
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.handover import HandoverRecord

SAID_LIMIT_S, ASK_EVERY_S = 45.0, 3.0
"""A fault that needs a round stays so much longer until its effect is said: the round may be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A cell that was gone through: whom it hit, when, and what was said of it meanwhile."""

    cell: Cell
    began_at: float
    target: Target | None
    strike: Strike
    said: Counter[str]
    took: dict[str, float] = field(default_factory=dict)
    """Seconds that the moment waited for what it had set going."""
    failure: str | None = None
    """Why the cell did not come to its end."""
    struck: bool = True
    """Whether the fault has struck: else its moment was never reached, and the failure says nothing of promises."""
    interrupted: bool = False
    """A signal ended it."""

    @property
    def played_out(self) -> bool:
        """Whether the cell came to its end."""
        return self.failure is None and not self.interrupted

    @property
    def unsaid(self) -> list[str]:
        """What should have been said, and was not: nothing shows that the fault had any effect."""
        return unsaid(self.cell.fault.must_say, self.said) if self.played_out else []


@dataclass(slots=True, kw_only=True)
class _Went:
    """How far a cell has come."""

    began_at: float
    target: Target | None = None
    at: float | None = None
    over_at: float | None = None

    def strike(self, stage: Stage, cell: Cell) -> Strike:
        """For the checker; what was not reached is now."""
        now = time.time()
        at = self.at or now
        target = self.target if self.at else None
        dead = cell.fault.victims(stage, target) if target else ()
        return Strike(
            case=str(cell),
            at=at,
            over_at=self.over_at or now,
            steered_at=now,
            dead=dead,
            none_left=set(dead) == set(stage.workers),
            lacking=cell.fault.lacking(stage, target) if target else (),
            spares_job=cell.fault.spares_job,
        )


class Campaign:
    """Cells on one stage; each leaves it steered, or says why not: then the stage is of no more use."""

    def __init__(self, stage: Stage, seed: int, halt: Halt) -> None:
        self._stage = stage
        self._seed = seed
        self._halt = halt
        self._load = Load(stage)

    def play(self, cell: Cell) -> Played:
        """One cell."""
        stage = self._stage
        stage.run.phase(str(cell))
        stage.notes.clear()
        stage.took.clear()
        stage.emptied.clear()
        ear = Ear(stage, cell.fault.must_say)
        went = _Went(began_at=time.time())
        failure, interrupted = None, False
        try:
            with self._halt.cell():
                self._suffer(cell, went, ear)
        except Interrupted:
            interrupted = True
        except Exception as error:  # whatever it is, it is this cell's: the matrix goes on
            failure = f"{type(error).__name__}: {error}"
        return Played(
            cell=cell,
            began_at=went.began_at,
            target=went.target,
            strike=went.strike(stage, cell),
            said=ear.said(),
            took=dict(stage.took),
            failure=failure,
            struck=went.at is not None,
            interrupted=interrupted,
        )

    def _suffer(self, cell: Cell, went: _Went, ear: Ear) -> None:
        stage, fault = self._stage, cell.fault
        if fault.needs_past and not stage.run.watch.rounds:
            self._play_a_round()
        with ExitStack() as moment:
            chance = random.Random(f"{self._seed} {cell}")  # a cell is the same, alone and among others
            went.target = moment.enter_context(cell.moment.reach(stage, self._load, chance))
            went.at = time.time()
            interrupted = None
            with fault.strike(stage, went.target):
                try:
                    self._last(cell, ear)
                except Interrupted as error:  # the cause of the fault is taken away nevertheless
                    interrupted = error
            went.over_at = time.time()
            if interrupted is not None:
                raise interrupted
        stage.until_steered(str(cell))

    def _last(self, cell: Cell, ear: Ear) -> None:
        """Let the fault last for as long as it is to."""
        stage, fault = self._stage, cell.fault
        if fault.needs_round and not cell.moment.in_round:
            self._load.shift(stage.settings.beyond_band)
        stage.wait(fault.lasts_s)
        until = time.monotonic() + SAID_LIMIT_S
        while fault.needs_round and unsaid(fault.must_say, ear.said()) and time.monotonic() < until:
            stage.wait(ASK_EVERY_S)

    def end_a_hand_over(self) -> None:
        """Play a round undisturbed, if faults have ended all hand-overs so far: the judge wants to see one."""
        if next(read_topic(self._stage.bootstrap, self._stage.cluster.topics.handover), None) is None:
            self._play_a_round()

    def _play_a_round(self) -> None:
        """Undisturbed: from then on there is something in every topic."""
        with tapped(self._stage.bootstrap, self._stage.cluster.topics.handover) as handovers:
            self._load.provoke(
                lambda limit_s: handovers.first(partial(decoded, kind=HandoverRecord), lambda _: True, limit_s)
            )
        self._stage.until_steered("a round")
