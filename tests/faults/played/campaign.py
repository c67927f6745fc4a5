"""Plays cells on a stage, one after the other, and sees what is said of each."""

import random
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from recorded.history import Strike

from played.cells import Cell
from played.moments import Target
from played.rounds import Load, tapped
from played.stage import Stage
from trimtab_controller.sandbox.configuration import host_name
from trimtab_models.messages.handover import decode_handover

COUNTED = ("bad_commands", "command_refusals", "worker_refused_records", "journal_faults")
"""Of the agents' metrics: what they, and their workers, refused."""
SAID_LIMIT_S = 45.0
"""A fault whose effect has to be said stays so much longer until it is: the round that it is to meet may be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A cell that was gone through: whom it hit, when, and what was said of it meanwhile."""

    cell: Cell
    began_at: float
    target: Target | None
    strike: Strike
    said: Counter[str]
    failure: str | None = None
    """Why the cell did not come to its end."""

    @property
    def unsaid(self) -> list[str]:
        """What should have been said, and was not."""
        return [] if self.failure is not None else _unsaid(self.cell, self.said)


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
        dead = cell.fault.victims(stage, self.target) if self.target and self.at else ()
        return Strike(
            case=str(cell),
            at=at,
            over_at=self.over_at or now,
            steered_at=now,
            dead=dead,
            none_left=set(dead) == set(stage.workers),
            spares_job=cell.fault.spares_job,
        )


class Campaign:
    """Cells on one stage; each leaves it steered, or says why not: then the stage is of no more use."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._seed = seed
        self._load = Load(stage)

    def play(self, cell: Cell) -> Played:
        """One cell."""
        stage = self._stage
        stage.run.phase(str(cell))
        stage.notes.clear()
        before = _refused(stage)
        went = _Went(began_at=time.time())
        failure = None
        try:
            self._suffer(cell, went)
        except Exception as error:  # whatever it is, it is this cell's: the matrix goes on
            failure = f"{type(error).__name__}: {error}"
        said = self._said(went.began_at)
        said.update(_refused(stage) - before)
        return Played(
            cell=cell,
            began_at=went.began_at,
            target=went.target,
            strike=went.strike(stage, cell),
            said=said,
            failure=failure,
        )

    def _suffer(self, cell: Cell, went: "_Went") -> None:
        stage, fault = self._stage, cell.fault
        if fault.needs_past and not stage.run.watch.rounds:
            self._play_a_round()
        with ExitStack() as moment:
            chance = random.Random(f"{self._seed} {cell}")  # a cell is the same, alone and among others
            went.target = moment.enter_context(cell.moment.reach(stage, self._load, chance))
            went.at = time.time()
            with fault.strike(stage, went.target):
                if fault.needs_round and not cell.moment.in_round:
                    self._load.shift(stage.settings.beyond_band)
                stage.wait(fault.lasts_s)
                stage.holds_within(SAID_LIMIT_S, lambda: not _unsaid(cell, self._said(went.began_at)))
            went.over_at = time.time()
        stage.until_steered(str(cell))

    def _play_a_round(self) -> None:
        """Undisturbed: from then on there is something in every topic."""
        with tapped(self._stage, self._stage.cluster.topics.handover) as handovers:
            self._load.provoke(lambda limit_s: handovers.first(decode_handover, lambda _: True, limit_s))
        self._stage.until_steered("a round")

    def _said(self, since: float) -> Counter[str]:
        """By controller and agents: reasons to do nothing, ways out, refusals, expired commands."""
        said = Counter(self._stage.notes)
        status = self._stage.run.watch.last
        if status is None:
            return said
        said.update(f"{row.kind} {row.reason}" for row in status.decisions if row.at >= since)
        rounds = [row for row in self._stage.run.watch.rounds.values() if (row.ended_at or row.started_at) >= since]
        said.update("fallback" for row in rounds if row.fallback)
        said.update({"key groups not moved": sum(row.failed for row in rounds)})
        if status.hold is not None:
            said["hold"] += 1
        return +said


def _unsaid(cell: Cell, said: Counter[str]) -> list[str]:
    return [wanted for wanted in cell.fault.must_say if not any(text.startswith(wanted) for text in said)]


def _refused(stage: Stage) -> Counter[str]:
    """What the controller, the agents and their workers count as refused."""
    status = stage.run.watch.last
    own = f"trimtab.{stage.settings.cluster}."
    rejected = status.rejected if status else {}
    found = Counter({f"rejected {name.removeprefix(own)}": count for name, count in rejected.items()})
    for index in range(stage.settings.workers):
        for family in text_string_to_metric_families(_metrics(stage.cluster.ports[host_name(index)][0])):
            metric = family.name.removeprefix("trimtab_agent_")
            if metric in COUNTED:
                samples = (sample for sample in family.samples if not sample.name.endswith("_created"))
                found.update({f"{metric} {sample.labels.get('reason', '')}": round(sample.value) for sample in samples})
    return found


def _metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""  # it is away just now
