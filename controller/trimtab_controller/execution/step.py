"""Collects the changes that follow from one event into one publication under one epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab_controller.execution.disruption import Disruption
from trimtab_controller.execution.events import Action, ExecutionLimits, HandoverEnded, Publish, RoundEnded
from trimtab_controller.execution.state import ENDED, Execution, Handover, Proposal, Round, WorkerScaling
from trimtab_controller.rows import Sites
from trimtab_protocol.messages.commands import Command
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement

FORGOTTEN_S = 3600.0
"""How long the last round of a forgotten app is kept: windows from before its end do not bring the app back."""


@dataclass(slots=True)
class Step:
    """The changes so far.

    `sites` = where workers were seen lately.  `execution` is the new state, `owners` and `adopted` are changes of
    placements, `commands` the commands to send.
    `afresh`: the topic has lost what was published before, so placements are published whole.
    """

    now: float
    cluster: str
    limits: ExecutionLimits
    execution: Execution
    sites: Sites
    epoch: Epoch = field(init=False)
    changed: bool = False
    owners: dict[KeyGroup, Owners] = field(default_factory=dict)
    adopted: dict[AppId, Placement] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    answered: tuple[str, ...] = ()
    ended: list[Handover] = field(default_factory=list)
    afresh: bool = False

    def __post_init__(self) -> None:
        self.epoch = Epoch(self.execution.generation, self.execution.number + 1)

    def row(self, key_group: KeyGroup) -> Owners:
        """The row of a key group after the changes so far."""
        if key_group in self.owners:
            return self.owners[key_group]
        placement = self.adopted.get(key_group.app, self.execution.placements.get(key_group.app))
        return placement.of(key_group.operator, key_group.partition) if placement is not None else ()

    def put(self, handover: Handover) -> None:
        """Replace a hand-over of its app's round."""
        row = self.execution.rounds[handover.app]
        rows = tuple(handover if each.id == handover.id else each for each in row.handovers)
        self.set_round(replace(row, handovers=rows))
        if handover.phase in ENDED:
            self.ended.append(handover)

    def drop(self, handover: Handover) -> None:
        """Take a hand-over that has not begun out of its app's round."""
        row = self.execution.rounds[handover.app]
        self.set_round(replace(row, handovers=tuple(each for each in row.handovers if each.id != handover.id)))

    def set_round(self, row: Round) -> None:
        """Replace the round of an app."""
        self.execution = replace(self.execution, rounds={**self.execution.rounds, row.app: row})
        self.changed = True

    def drop_details(self) -> None:
        """Drop the hand-overs of the rounds that have ended: each journal entry would repeat them for ever."""
        rounds = {
            app: row if row.ended_at is None else replace(row, handovers=())
            for app, row in self.execution.rounds.items()
        }
        self.execution = replace(self.execution, rounds=rounds)

    def scale(self, scaling: WorkerScaling) -> None:
        """Replace the last stop or start of a worker."""
        scalings = {**self.execution.scalings, scaling.command.worker: scaling}
        self.execution = replace(self.execution, scalings=scalings)
        self.changed = True

    def set_proposals(self, proposals: Mapping[AppId, Proposal]) -> None:
        """Replace the plans that wait for approval."""
        self.execution = replace(self.execution, proposals=proposals)
        self.changed = True

    def begin_to_count(self) -> None:
        """Count pauses from now on, if nobody has counted them before."""
        if self.execution.disruption.since is None:
            self.count(replace(self.execution.disruption, since=self.now))

    def count(self, disruption: Disruption) -> None:
        """Replace what has paused; it is published together with the change that it follows from."""
        if disruption is not self.execution.disruption:
            self.execution = replace(self.execution, disruption=disruption)

    def close(self) -> list[Action]:
        """The publication and what it ended; nothing without a change.  `execution` becomes the published state."""
        finished = [replace(row, ended_at=self.now) for row in self.execution.in_flight if row.ended]
        for row in finished:
            self.set_round(row)
        if not self.changed:
            return []
        placements, before = self._placements(), self.execution.placements
        merged = {**self.execution.placements, **{placement.app: placement for placement in placements}}
        present = {app: placement for app, placement in merged.items() if not placement.is_taken_back}
        rounds = {app: row for app, row in self.execution.rounds.items() if app in present or self._is_recent(row)}
        self.execution = replace(self.execution, number=self.epoch.number, placements=present, rounds=rounds)
        actions: list[Action] = [
            Publish(
                execution=self.execution,
                placements=placements,
                before={each.app: before[each.app] for each in placements if each.app in before and not self.afresh},
                commands=tuple(self.commands),
                answered=self.answered,
            ),
            *(HandoverEnded(handover=handover) for handover in self.ended),
        ]
        return [*actions, *(RoundEnded(round=row) for row in finished)]

    def _is_recent(self, row: Round) -> bool:
        return row.ended_at is None or row.ended_at > self.now - FORGOTTEN_S

    def _placements(self) -> tuple[Placement, ...]:
        placements = dict(self.adopted)
        for app in dict.fromkeys(key_group.app for key_group in self.owners):
            rows = {key_group: row for key_group, row in self.owners.items() if key_group.app == app}
            base = placements.get(app, self.execution.placements.get(app))
            assert base is not None
            placements[app] = base.changed(self.epoch, rows)
        return tuple(map(self._in_its_form, placements.values()))

    def _in_its_form(self, placement: Placement) -> Placement:
        """A placement of at most `key_groups_per_part` key groups is one record, a larger one is in parts."""
        size = self.limits.key_groups_per_part
        part_size = size if sum(map(len, placement.owners.values())) > size else None
        return placement if part_size == placement.part_size else replace(placement, part_size=part_size)
