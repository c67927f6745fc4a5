"""The guard: it ends a plan from which its job suffers although the pace cannot slow it any more.  Pure.

A job suffers in a window in which it, or a worker that receives key groups, is behind by more than the limit
(`lags.py`), and by a hand-over whose key groups paused for longer than the limit.  Several in a row end the plan, as
`trimtab stop` does.  A window that does not show how the job is neither counts nor ends the row.  Only plans that the
job can do without are ended: drains, restores after a loss, and what operators and rules want go on, slowly.

The first whole window after the end shows what the moves have done.  A key group goes back only if its new worker has
fallen behind since, and is further behind than the old one, which still follows its state.  What is not known moves
nothing.  Moving back is a plan of its own, which the guard does not end, and each plan is moved back once at most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trimtab_controller.execution import handovers
from trimtab_controller.execution.events import Action, ExecutionLimits, GuardActed, WindowSeen
from trimtab_controller.execution.lags import JobWindow, Lag, Lags
from trimtab_controller.execution.pace import PlanPace
from trimtab_controller.execution.state import (
    ENDED,
    GUARDED,
    GuardMode,
    GuardStop,
    Handover,
    HandoverPhase,
    Moved,
    Round,
)
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.wording import first_few

JUDGED_WITHIN_S = 120.0
"""A window that began so long after the end of a plan does not show what its moves have done."""
BACK_WITHIN_S = 120.0
"""How long the moves back may wait until they begin."""
WORSE_SHARE = 0.5
"""A worker has fallen behind if its lag grew by more than this share of the limit."""
LONGEST_BACK_OFF_S = 86_400.0
REMEMBERED_S = 86_400.0
"""How long after its back-off a stop counts as the one before the next, if no plan has gone well since."""
MOVED_OR_MAY = frozenset({HandoverPhase.DONE, HandoverPhase.RELEASING, HandoverPhase.RESOLVING})


class PlanGuard:
    """Watches the plans in flight.  The counts are not journalled: a new leader counts anew.

    `lags_s` = how far each app was behind in the last window, as far as known.  `window_s` = how long that was.
    """

    def __init__(self, limits: ExecutionLimits) -> None:
        self._limits = limits
        self._lags = Lags()
        self.lags_s: Mapping[AppId, float] = {}
        self.window_s: float | None = None
        self._windows: dict[AppId, int] = {}
        self._pauses: dict[AppId, int] = {}

    def observe(self, step: Step, seen: WindowSeen, jobs: Mapping[AppId, JobWindow], pace: PlanPace) -> list[Action]:
        """Take a window: it sets the pace, ends plans, and shows what ended ones have done."""
        self.window_s = seen.end_s - seen.start_s
        rounds = {row.app: row for row in step.execution.in_flight}
        self._windows = {app: count for app, count in self._windows.items() if app in rounds}
        lags = self._lags.observe(seen.end_s, jobs, rounds.values())
        self.lags_s = {app: lag.lag_s for app, lag in lags.items() if lag.lag_s is not None}
        actions: list[Action] = []
        for app, lag in lags.items():
            row = rounds.get(app)
            lowest = pace.is_lowest(app)
            if (changed := pace.see_window(step.now, app, seen, lag, row)) is not None:
                actions.append(changed)
            if row is None or lag.grown_s is None:
                continue
            suffers = lag.grown_s > self._limits.max_lag_s
            self._windows[app] = self._windows.get(app, 0) + 1 if suffers and lowest else 0
            if self._windows[app] >= self._limits.guard_windows:
                who = "the job" if lag.worst is None else f"{lag.worst}, which receives key groups,"
                told = f"{who} is {lag.grown_s:.1f} s further behind than its plan found it"
                actions += self._end(step, row, f"{told}, for {self._windows[app]} windows")
        return [*actions, *self._judge(step, seen, lags)]

    def see_ended(self, step: Step, ended: Iterable[Handover], pace: PlanPace) -> list[Action]:
        """Take the hand-overs that have ended in this step; an unknown pause says nothing."""
        self._pauses = {app: count for app, count in self._pauses.items() if step.execution.busy(app)}
        actions: list[Action] = []
        for each in ended:
            row = step.execution.rounds[each.app]
            if each.pause_s is None or row.ended_at is not None:
                continue
            suffers = each.pause_s > self._limits.max_pause_s and pace.is_lowest(each.app)
            self._pauses[each.app] = self._pauses.get(each.app, 0) + 1 if suffers else 0
            if self._pauses[each.app] >= self._limits.guard_windows:
                told = f"{self._pauses[each.app]} hand-overs in a row paused key groups for more than"
                actions += self._end(
                    step, row, f"{told} {self._limits.max_pause_s:g} s, the last for {each.pause_s:.1f} s"
                )
        return actions

    def _end(self, step: Step, row: Round, told: str) -> list[Action]:
        """End the plan and remember what it has moved; nothing if the guard leaves such plans alone."""
        self._windows.pop(row.app, None)
        self._pauses.pop(row.app, None)
        open_left = any(each.phase not in ENDED for each in row.handovers)
        if self._limits.guard is GuardMode.OFF or row.kind not in GUARDED or row.stopped is not None or not open_left:
            return []
        before = step.execution.guarded.get(row.app)
        again = before is not None and step.now <= before.until + REMEMBERED_S
        times = before.times + 1 if before is not None and again else 1
        handovers.stop_all(step, row, f"ended by the guard: {told}, at one hand-over at a time")
        moves = tuple(
            Moved(key_group=key_group, source=each.source, target=each.target)
            for each in row.handovers
            if each.phase in MOVED_OR_MAY
            for key_group in each.key_groups
        )
        goes_back = self._limits.guard is GuardMode.ROLL_BACK and bool(moves)
        base = self._lags.bases.get(row.app)
        stop = GuardStop(
            app=row.app,
            plan=row.plan,
            at=step.now,
            until=step.now + self._back_off_s(times),
            detail=told,
            times=times,
            lags_s=_of_ends(base.found_s, moves) if base is not None and goes_back else {},
            moves=moves if goes_back else (),
            back_by=None if goes_back else step.now,
        )
        _remember(step, stop)
        return [GuardActed(stop=stop)]

    def _back_off_s(self, times: int) -> float:
        """How long the app gets no plan for balance, when the guard has ended so many plans in a row."""
        return min(LONGEST_BACK_OFF_S, self._limits.guard_back_off_s * 2.0 ** min(times - 1, 20))

    def _judge(self, step: Step, seen: WindowSeen, lags: dict[AppId, Lag]) -> list[Action]:
        """What has to go back of the plans that were ended, as far as this window shows it."""
        actions: list[Action] = []
        for app, stop in step.execution.guarded.items():
            row = step.execution.rounds.get(app)
            if stop.back_by is not None or row is None or row.plan != stop.plan or row.ended_at is None:
                continue
            late = seen.start_s > row.ended_at + JUDGED_WITHIN_S
            if seen.start_s < row.ended_at or (app not in lags and not late):
                continue
            moves = () if late else self._worse(stop, lags[app])
            judged = replace(stop, moves=moves, back_by=step.now + BACK_WITHIN_S, lags_s={})
            _remember(step, judged)
            actions.append(GuardActed(stop=judged))
        return actions

    def _worse(self, stop: GuardStop, lag: Lag) -> tuple[Moved, ...]:
        """The moves whose target has fallen behind, and is further behind than the source."""
        margin, now = WORSE_SHARE * self._limits.max_lag_s, lag.workers_s

        def is_worse(each: Moved) -> bool:
            before, target, source = stop.lags_s.get(each.target), now.get(each.target), now.get(each.source)
            if before is None or target is None or source is None:
                return False
            return target > max(before, source) + margin

        return tuple(each for each in stop.moves if is_worse(each))


def begun(step: Step, app: AppId) -> None:
    """A plan of an app begins: nothing of an earlier one is moved back beside it, or after it."""
    stop = step.execution.guarded.get(app)
    if stop is not None and (stop.moves or stop.back_by is None):
        _remember(step, replace(stop, moves=(), lags_s={}, back_by=step.now))


def forgive(step: Step) -> None:
    """Forget the stops that count no longer: a plan for balance has gone well since, or it is long ago."""
    kept = {app: stop for app, stop in step.execution.guarded.items() if not _is_over(step, stop)}
    if step.changed and len(kept) < len(step.execution.guarded):
        step.execution = replace(step.execution, guarded=kept)


def _is_over(step: Step, stop: GuardStop) -> bool:
    row = step.execution.rounds.get(stop.app)
    went_well = row is not None and row.kind in GUARDED and row.ended and row.plan != stop.plan and not row.stopped
    return went_well or row is None or step.now > stop.until + REMEMBERED_S


def describe_stop(stop: GuardStop) -> str:
    """What the guard has done, for operators."""
    text = f"plan {stop.plan} was ended by the guard: {stop.detail}"
    if stop.back_by is None:
        return f"{text}; the next window shows what has to be moved back"
    if stop.moves:
        names = first_few([f"{each.key_group} from {each.target}" for each in stop.moves])
        return f"{text}; {len(stop.moves)} key groups go back: {names}"
    return text


def _of_ends(lags_s: Mapping[WorkerId, float], moves: Iterable[Moved]) -> dict[WorkerId, float]:
    ends = {worker for each in moves for worker in (each.source, each.target)}
    return {worker: lag_s for worker, lag_s in lags_s.items() if worker in ends}


def _remember(step: Step, stop: GuardStop) -> None:
    step.execution = replace(step.execution, guarded={**step.execution.guarded, stop.app: stop})
    step.changed = True
