"""Runs cells on stages, and has each stage's history judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flights.steered_run import Viewer
from tests.faults.played.campaign import Campaign, Played
from tests.faults.played.cells import Cell
from tests.faults.played.disks import obstacle
from tests.faults.played.faults import TWO_BROKERS
from tests.faults.played.halt import Halt
from tests.faults.played.moments import NEW_APP
from tests.faults.played.stage import Stage, StageSettings
from tests.faults.recorded.check import check
from tests.faults.recorded.history import read_history
from tests.faults.recorded.verdict import Cost, Verdict, Violation
from trimtab_controller.jars.fetching import JarError
from trimtab_controller.jars.java import JavaMissingError

STAGES: Mapping[str, StageSettings] = {
    "plain": StageSettings(),
    "five hosts": StageSettings(workers=5, key_groups=30),
    "host keys": StageSettings(host_keys=True),
    NEW_APP: StageSettings(new_app=True),
    TWO_BROKERS: StageSettings(brokers=2),
}
STARTS = 2
"""A stage that does not come up is started once more: on a crowded machine somebody else may take a port."""
CELLS_PER_STAGE = {NEW_APP: 1}
"""By kind of stage; an app is new only once."""
MOST_CELLS = 20
"""Of all others: the flights last for about so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a cell.  Without `played` it was not tried (`failure` says why), without `cost` not judged."""

    cell: Cell
    logs: Path
    played: Played | None = None
    cost: Cost | None = None
    violations: tuple[Violation, ...] = ()
    failure: str | None = None
    impossible: bool = False
    """Not on this machine: neither kept nor broken."""

    @property
    def broken(self) -> list[str]:
        """What went wrong, a sentence each."""
        found = [] if self.failure is None or self.impossible else [self.failure]
        if self.played is not None:
            found += [self.played.failure] if self.played.failure and self.played.struck else []
        return [*found, *(f"{violation.broken}: {violation.text}" for violation in self.violations)]

    @property
    def not_played(self) -> list[str]:
        """Why nothing shows that the fault had any effect: then it is not known whether a promise is kept."""
        if self.played is not None and self.played.interrupted:
            return ["interrupted by a signal"]
        if self.played is not None and self.played.failure and not self.played.struck:
            return [f"its moment was not reached: {self.played.failure}"]
        return [] if self.played is None else [f"nobody said {text!r}" for text in self.played.unsaid]


def run_matrix(
    cells: Sequence[Cell], folder: Path, view: Viewer, *, seed: int, halt: Halt, in_place: str = "off"
) -> Iterator[Result]:
    """All cells, stage after stage; a cell that fails ends its stage, not the matrix; a signal ends both."""
    impossible = {cell: reason for cell in cells if cell.fault.needs_disk and (reason := obstacle())}
    yield from (Result(cell=cell, logs=folder, failure=why, impossible=True) for cell, why in impossible.items())
    number = 0
    for kind, plain in STAGES.items():
        settings = replace(plain, in_place=in_place)
        waiting = [cell for cell in cells if cell.stage == kind and cell not in impossible]
        most = CELLS_PER_STAGE.get(kind, MOST_CELLS)
        while waiting and not halt.asked:
            for _ in range(STARTS):
                number += 1
                results = run_stage(waiting[:most], Stage(settings, folder / f"stage-{number}", view), seed, halt)
                if results[0].played is not None:
                    break
            yield from results
            del waiting[: len(results)]


def run_stage(cells: Sequence[Cell], stage: Stage, seed: int, halt: Halt) -> list[Result]:
    """As many of the cells as the stage can bear: up to the first that fails or is interrupted, and that one."""
    logs = stage.folder / "sandbox" / "logs"
    played: list[Played] = []
    try:
        with stage:
            campaign = Campaign(stage, seed, halt)
            while len(played) < len(cells) and not halt.asked and not (played and played[-1].failure):
                played.append(campaign.play(cells[len(played)]))
            if not halt.asked and not played[-1].failure and any(cell.hands_over for cell in cells[: len(played)]):
                campaign.end_a_hand_over()
            stage.come_to_rest()
            stage.record([each.strike for each in played])
        verdict = judge(stage)
    except (JarError, JavaMissingError):
        raise
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        tried = played or [None]
        return [
            Result(cell=cell, logs=logs, played=each, failure=f"not judged: {failure}")
            for cell, each in zip(cells, tried, strict=False)
        ]
    finally:
        halt.judged()
    unseen = verdict.unseen(rounds=any(each.cell.hands_over for each in played if each.played_out))
    blind = f"not judged: nothing is recorded of {', '.join(unseen)}" if unseen else None
    return [
        Result(cell=each.cell, logs=logs, played=each, cost=cost, violations=tuple(violations), failure=blind)
        for each, cost, violations in zip(played, verdict.costs, shared_out(verdict, played), strict=True)
    ]


def judge(stage: Stage) -> Verdict:
    """What the recorded history of a stage says."""
    return check(read_history(stage.settings.cluster, *stage.histories), stage.settings.bounds)


def shared_out(verdict: Verdict, played: Sequence[Played]) -> list[list[Violation]]:
    """The violations by cell: each to the last that had begun; one without a time to the last of all."""
    shares: list[list[Violation]] = [[] for _ in played]
    for violation in verdict.violations:
        begun = [place for place, each in enumerate(played) if violation.at and each.began_at <= violation.at]
        shares[begun[-1] if begun else -1].append(violation)
    return shares
