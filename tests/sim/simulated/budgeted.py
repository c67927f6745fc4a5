"""A disruption budget, or windows for plans, in some simulated clusters, and what must hold: read from the journal.

An hour lasts five minutes here, so that pauses cease to count within a simulation.
"""

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from tests.sim.simulated.ledger import Violation
from trimtab_controller.decider.values.plan_settings import PlanTimes
from trimtab_controller.execution.disruption import DisruptionSettings
from trimtab_controller.execution.state import Handover, HandoverPhase, Round

BUDGETED_EVERY, BUDGETED, WINDOWED = 16, 3, 11
"""Of so many seeds in a row one is of a cluster with a budget, and one of a cluster with windows."""
WINDOWS = PlanTimes(windows=("5-59/10 * * * * for 4m",))
HOUR_S = 300.0
UNKNOWN_PAUSE_S = 0.5
SHORTEST_S, LONGEST_S = 0.05, 1.5
"""Pauses of hand-overs."""
ROUNDING_S = 1e-6
RELEASED = (HandoverPhase.RELEASING, HandoverPhase.RESOLVING)


def some_budget(seed: int) -> DisruptionSettings:
    """In one of sixteen clusters: enough for a few key groups in five minutes."""
    if seed % BUDGETED_EVERY != BUDGETED:
        return DisruptionSettings()
    return DisruptionSettings(max_paused_s_per_hour=random.Random(seed).choice((1.5, 3.0, 6.0)))


def some_times(seed: int) -> PlanTimes:
    """In one of sixteen clusters plans for balance begin only in four of ten minutes, not in the first ones."""
    return WINDOWS if seed % BUDGETED_EVERY == WINDOWED else PlanTimes()


def in_window(now: float) -> bool:
    """Whether plans for balance may begin where there are windows."""
    return 5 <= int(now // 60) % 10 < 9


def pause_of(handover: str) -> float:
    """For how long the key groups of a hand-over pause: the same in each replay."""
    share = zlib.crc32(handover.encode()) % 1000 / 999.0
    return SHORTEST_S + share * (LONGEST_S - SHORTEST_S)


@contextmanager
def short_hours() -> Iterator[None]:
    """Pauses count for five minutes."""
    with (
        patch("trimtab_controller.execution.disruption.WINDOW_S", HOUR_S),
        patch("trimtab_controller.execution.budget.WINDOW_S", HOUR_S),
    ):
        yield


@dataclass(slots=True)
class BudgetCheck:
    """Judges every hand-over that begins or is released.  `judged` counts them, `highest_s` = the most ever used.

    It counts measured pauses only, and for exactly five minutes: never more than the product does.
    """

    limit_s: float | None = None
    judged: int = 0
    highest_s: float = 0.0
    _ended: list[tuple[float, float]] = field(default_factory=list)
    _phases: dict[str, HandoverPhase] = field(default_factory=dict)
    _released: dict[str, int] = field(default_factory=dict)

    def see(self, now: float, row: Round) -> None:
        """A round in the journal.  Restores after a loss are not held back, and no pause of theirs is measured."""
        if self.limit_s is None or row.lost:
            return
        for each in row.handovers:
            before = self._phases.get(each.id)
            self._phases[each.id] = each.phase
            if before is HandoverPhase.DONE:
                continue
            if each.phase is HandoverPhase.DONE and each.pause_s is not None:
                self._ended.append((now, each.pause_s * len(each.key_groups)))
            if each.phase not in RELEASED:
                self._released.pop(each.id, None)
            elif before not in RELEASED:
                self._see_released(now, each)
        used_s = self.used_s(now)
        self.highest_s = max(self.highest_s, used_s)
        # What was released as far as was expected may pause longer, and nothing else may add to it.
        if used_s > self.limit_s + self._overrun_s + ROUNDING_S:
            raise Violation(f"budget: {used_s:.2f} of {self.limit_s:g} key-group seconds paused")

    @property
    def _overrun_s(self) -> float:
        """By how much two hand-overs of two key groups can exceed what is expected of them."""
        return 2 * 2 * LONGEST_S

    def _see_released(self, now: float, handover: Handover) -> None:
        self.judged += 1
        self._released[handover.id] = len(handover.key_groups)
        least_s = self.used_s(now) + SHORTEST_S * sum(self._released.values())
        if self.limit_s is not None and least_s > self.limit_s + ROUNDING_S:
            raise Violation(
                f"budget: hand-over {handover.id} is released although {self.used_s(now):.2f} of {self.limit_s:g} "
                "key-group seconds are used"
            )

    def used_s(self, now: float) -> float:
        """What has paused in the last five minutes."""
        self._ended = [(at, paused_s) for at, paused_s in self._ended if at + HOUR_S > now]
        return sum(paused_s for _, paused_s in self._ended)
