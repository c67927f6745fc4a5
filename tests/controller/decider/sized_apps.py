"""Facts about the size of an app, and a fleet that follows the verdicts: for the tests of the size."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_controller.decider.policies.size_facts import SizedWorker, SizeFacts
from trimtab_controller.decider.policies.verdict import LastingNeed, judge
from trimtab_controller.decider.values.decision import PoolWorker, SizeDirection, SizeVerdict
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.execution.state import SizeChange
from trimtab_protocol.messages.intents import Scale
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

APP = AppId("app")
WINDOW_S = 10.0
ACT = ScalingSettings(mode=Mode.ACT)


def worker(number: int, **changes: object) -> SizedWorker:
    made = SizedWorker(
        id=WorkerId(f"w{number:02}"),
        host=HostId(f"h{number:02}"),
        capacity=1.0,
        state_bytes=number,
        key_groups=10,
        stays=True,
        free=True,
        removable=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def pool(*numbers: int) -> tuple[PoolWorker, ...]:
    return tuple(PoolWorker(worker=WorkerId(f"w{n:02}"), host=HostId(f"h{n:02}"), capacity=1.0) for n in numbers)


def facts(workers: int, demand: float, end_s: float = 1000.0, **changes: object) -> SizeFacts:
    """So many workers of one core each, and a demand in cores, spread over 100 key groups."""
    made = SizeFacts(
        app=APP,
        start_s=end_s - WINDOW_S,
        end_s=end_s,
        workers=tuple(worker(number) for number in range(workers)),
        demand=demand,
        loads=np.full(100, demand / 100),
        fixed=0.0,
        behind=0.0,
        rate=100.0 * demand,
        standbys=0,
        pool=pool(*range(50, 70)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def verdict(seen: SizeFacts, settings: ScalingSettings = ACT, held_s: float = 7200.0, **changes: object) -> SizeVerdict:
    """The verdict after what is needed now was needed for so long already."""
    needs = [
        LastingNeed(direction=direction, since=seen.start_s - held_s, seen=seen.start_s)
        for direction in (SizeDirection.OUT, SizeDirection.IN)
    ]
    found = [judge(seen, settings, need=need, **changes)[0] for need in needs]  # type: ignore[arg-type]
    return next((each for each in found if each.due or each.asks), found[0])


def word(workers: int) -> Scale:
    return Scale(app=APP, workers=workers, by="ann@desk", at=1.0, reason="a sale")


@dataclass
class Fleet:
    """Workers that join at once and that leave in the window after; `made` = all changes."""

    demand: Callable[[float], float]
    workers: int = 4
    settings: ScalingSettings = ACT
    fixed: float = 0.0
    need: LastingNeed | None = None
    changes: list[SizeChange] = field(default_factory=list)
    made: list[tuple[float, int]] = field(default_factory=list)

    def run(self, seconds: float) -> list[tuple[float, int]]:
        """Play so many seconds; when the number of workers changed, and to what."""
        end_s = 1e6
        until = end_s + seconds
        while end_s < until:
            end_s += WINDOW_S
            seen = facts(self.workers, max(0.0, self.demand(end_s - 1e6)), end_s, fixed=self.fixed)
            found, self.need = judge(seen, self.settings, need=self.need, changes=self.changes)
            if found.due:
                assert found.wanted is not None
                change = SizeChange(at=end_s, before=self.workers, after=found.wanted, rate=found.rate)
                self.changes.append(change)
                self.made.append((end_s - 1e6, found.wanted))
                self.workers, self.need = found.wanted, None
        return self.made
