"""Jobs that suffer while a plan is in flight, and what must hold of plans that the guard has ended."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.simulated.ledger import Account, Violation
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import Heal, World
from trimtab_controller.execution.state import GUARDED, Execution, GuardStop, Round
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId


class FallingBehind(WorkerProcess):
    """It says that it falls behind while `behind_since` is set: everything that comes waits.

    Its restores take long, so that windows end while a plan is in flight.
    """

    behind_since: float | None = None
    restore_s = (6.0, 14.0)

    def backlog(self, account: Account) -> int:
        """What waits of a key group."""
        return 0 if self.behind_since is None else int(account.rate * (self._timeline.now - self.behind_since))


def fall_behind(world: World) -> Heal | None:
    """Some workers fall behind, further and further, or all of them."""
    workers = [worker for worker in world.workers() if isinstance(worker, FallingBehind)]
    if not workers:
        return None
    chosen = world.random.sample(workers, world.random.randint(1, len(workers)))
    for worker in chosen:
        worker.behind_since = world.timeline.now

    def heal() -> None:
        for worker in chosen:
            worker.behind_since = None

    return heal


def suffer_from(world: World, row: Round) -> None:
    """The workers to which a plan moves key groups fall behind soon, and catch up a minute later."""
    targets = {each.target for each in row.handovers}

    def set_since(since: float | None) -> None:
        for worker in world.workers():
            if isinstance(worker, FallingBehind) and worker.id in targets:
                worker.behind_since = since

    world.timeline.soon(5.0, 15.0, lambda: set_since(world.timeline.now))
    world.timeline.after(75.0, lambda: set_since(None))


@dataclass(slots=True)
class GuardCheck:
    """Told of the journal's entries, in order."""

    stops: dict[AppId, GuardStop] = field(default_factory=dict)
    moved: dict[str, dict[KeyGroup, tuple[WorkerId, WorkerId]]] = field(default_factory=dict)
    """Plan -> what it was to move: from, to."""
    rolled_back: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    on_begin: Callable[[Round], None] = lambda row: None
    """Told of each plan for balance that begins."""

    def see(self, now: float, execution: Execution, before: Execution | None) -> None:
        """One entry, and the one before."""
        for app, row in execution.rounds.items():
            if before is None or app not in before.rounds or before.rounds[app].plan != row.plan:
                self._see_begin(now, row)
        for app, stop in execution.guarded.items():
            if stop.plan not in self.ended and execution.rounds[app].kind not in GUARDED:
                raise Violation(f"the guard ends plan {stop.plan}, which is not for balance")
            self.ended.add(stop.plan)
        self.stops = dict(execution.guarded)

    def _see_begin(self, now: float, row: Round) -> None:
        stop = self.stops.get(row.app)
        if row.kind is PlanReason.ROLL_BACK:
            self._see_roll_back(row, stop)
        elif row.kind in GUARDED and stop is not None and now < stop.until:
            raise Violation(f"plan {row.plan} begins while the guard lets the app have none")
        self.moved[row.plan] = {each: (move.source, move.target) for move in row.handovers for each in move.key_groups}
        if row.kind in GUARDED:
            self.on_begin(row)

    def _see_roll_back(self, row: Round, stop: GuardStop | None) -> None:
        if stop is None or stop.plan in self.rolled_back:
            raise Violation(f"plan {row.plan} moves back what is no more to be moved back")
        was = self.moved[stop.plan]
        for move in row.handovers:
            for each in move.key_groups:
                if was.get(each) != (move.target, move.source):
                    raise Violation(f"plan {row.plan} moves {each} back, which plan {stop.plan} has not moved so")
        self.rolled_back.append(stop.plan)
