"""The restores of hand-overs: their order, which begin next, which are released next, and what they have cost.

The order is DynDL with given targets: the plan has decided where each key group goes.  The schedule is made with the
p90 curve of what restores cost, and promised with the p50 curve.  It is made when the plan begins.  The journal has the
order; a new leader schedules what is left.

A restore takes long and disturbs little, a release is short and pauses.  Targets may restore many key groups at the
same time.  Then several become warm at once, and each release makes its source and its target commit.  So they wait for
each other, warm, while their source goes on with the key groups.

Restores share links and slots of their hosts with new standbys (`standby_restores.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.execution import handovers
from trimtab_controller.execution.budget import BudgetGate
from trimtab_controller.execution.events import ExecutionLimits, HostReport, RestoreEnded
from trimtab_controller.execution.handovers import answers
from trimtab_controller.execution.pace import PlanPace, RestoreRate, limited_s, share_of_host, slow_start_s
from trimtab_controller.execution.restore_costs import LearnedRestores, RestoreCosts, slots_of
from trimtab_controller.execution.standby_restores import StandbyRestores
from trimtab_controller.execution.state import ENDED, IN_FLIGHT, Execution, Handover, HandoverPhase, Recovery, Round
from trimtab_controller.execution.step import Step
from trimtab_models.dyndl.fitting import FittedCost
from trimtab_models.dyndl.given import GivenProblem, solve_given, with_costs
from trimtab_models.instances.scheduling import RemoteCost
from trimtab_protocol.messages.commands import Ack, Phase
from trimtab_protocol.messages.names import AppId, HostId

RELEASES_PER_HOST = 2
"""The most hand-overs from and to a host that are released at the same time."""


class Releases:
    """The hand-overs whose targets are warm, with their acks, in the order in which they became so.

    They are not in the journal: a new leader reads the acks again.
    """

    def __init__(self) -> None:
        self._warm: dict[str, Ack] = {}

    def hear(self, handover: Handover, ack: Ack) -> bool:
        """Whether this ack says that the target is warm.  It is kept until the hand-over is taken."""
        preparing = handover.phase is HandoverPhase.PREPARING and answers(ack, handover.prepare)
        if not preparing or ack.phase is not Phase.PREPARED:
            return False
        self._warm[handover.id] = ack
        return True

    def is_warm(self, handover: Handover) -> bool:
        """Whether the target of a hand-over that is being prepared has become warm."""
        ack = self._warm.get(handover.id)
        return ack is not None and handover.phase is HandoverPhase.PREPARING and answers(ack, handover.prepare)

    def take_due(self, execution: Execution, gate: BudgetGate) -> Iterator[tuple[Handover, Ack]]:
        """The hand-overs to release now; `gate` = the disruption budgets."""
        present = {handover.id: handover for row in execution.in_flight for handover in row.handovers}
        self._warm = {name: ack for name, ack in self._warm.items() if name in present and self.is_warm(present[name])}
        busy: Counter[HostId] = Counter()
        for handover in present.values():
            if handover.phase is HandoverPhase.RELEASING:
                busy.update(handover.hosts)
        for name, ack in list(self._warm.items()):
            handover = present[name]
            if gate.may_release(handover) and all(busy[host] < RELEASES_PER_HOST for host in handover.hosts):
                gate.released(handover)
                busy.update(handover.hosts)
                del self._warm[name]
                yield handover, ack


Ints = NDArray[np.int64]


def schedule(
    now: float,
    handovers: Sequence[Handover],
    restoring: Sequence[Handover],
    cores: Mapping[HostId, float],
    limits: ExecutionLimits,
    costs: RestoreCosts,
    building: Mapping[HostId, Sequence[float]],
    *,
    lost: bool,
    window_s: float | None,
) -> tuple[tuple[Handover, ...], Recovery]:
    """The order in which new hand-overs should begin, and what that promises.

    `restoring` = those of all apps whose targets restore now, `building` = the seconds left of the new standbys that
    restore now, by host.  `lost`: after a loss, so that neither pace nor a limit of bytes per second counts.
    `window_s` = the length of the windows that let a plan go faster.
    On each host local restores come first, then the largest.  Workers that also give key groups away receive last.
    Before all that, the highest priority comes first, whatever that promises.
    """
    hosts = sorted({each.target_host for each in handovers})
    place = {host: at for at, host in enumerate(hosts)}
    slots = {host: slots_of(cores.get(host), limits.handovers_per_host) for host in hosts}
    curves = costs.curves(hosts, slots)
    slots = {host: costs.at_once(host, most, curves[host]) for host, most in slots.items()}
    fitted = [curves[host] for host in hosts]
    unit_s = costs.unit_s
    lacking = lacking_bytes(handovers)
    problem = GivenProblem(
        server=np.array([place[each.target_host] for each in handovers], np.int64),
        size=np.array([costs.size(size) for size in lacking]),
        local=np.array([each.has_copy for each in handovers], np.bool_),
        slots=np.array([slots[host] for host in hosts], np.int64),
        costs=[each.high for each in fitted],
        running=[
            _running(now, host, restoring, fitted[at], costs) + [left / unit_s for left in building.get(host, ())]
            for at, host in enumerate(hosts)
        ],
    )
    found = solve_given(problem)
    medians = [each.median for each in fitted]
    promised = with_costs(problem, found, medians)
    expected = _waiting(problem, found.slots, medians, handovers, limits)
    least = _waiting(problem, np.ones_like(found.slots), medians, handovers, limits)
    of_hosts: dict[HostId, list[int]] = {}
    for each, size in zip(handovers, lacking, strict=True):
        of_hosts.setdefault(each.target_host, []).append(0 if lost else size)
    limited, least_limited = (limited_s(limits, of_hosts, all_of_it=each) for each in (True, False))
    slowly = 0.0 if lost or window_s is None else _slow_start_s(problem, found.slots, medians, unit_s, limits, window_s)
    givers = {each.source for each in handovers}
    order = sorted(
        range(len(handovers)),
        key=lambda at: (-handovers[at].priority, handovers[at].target in givers, found.start[at], at),
    )
    return tuple(handovers[at] for at in order), Recovery(
        slots=dict(zip(hosts, found.slots.tolist(), strict=True)),
        began_at=now,
        planned_s=max(limited, max(promised.makespan, expected) * unit_s + slowly),
        bound_s=max(least_limited, max(promised.lower_bound, least) * unit_s),
        unknown_links=tuple(host for host in hosts if costs.links.of(host) is None),
    )


def _waiting(
    problem: GivenProblem,
    slots: Ints,
    costs: Sequence[RemoteCost],
    handovers: Sequence[Handover],
    limits: ExecutionLimits,
) -> float:
    """How long the hand-overs take at least because of the limits of their app and of their sources' hosts, in units.

    These limits count hand-overs of all targets together, which the schedule of each target does not see.
    """
    remote = np.bincount(problem.server[~problem.local], minlength=len(problem.slots))
    factor = np.array([cost.at(max(1, min(at, n))) for cost, at, n in zip(costs, slots, remote, strict=True)])
    taking = problem.size * np.where(problem.local, 1.0, factor[problem.server])
    by_source: dict[HostId, float] = {}
    for handover, time in zip(handovers, taking.tolist(), strict=True):
        by_source[handover.source_host] = by_source.get(handover.source_host, 0.0) + time
    return max(max(by_source.values()) / limits.handovers_per_host, float(taking.sum()) / limits.handovers_in_flight)


def _slow_start_s(
    problem: GivenProblem,
    slots: Ints,
    costs: Sequence[RemoteCost],
    unit_s: float,
    limits: ExecutionLimits,
    window_s: float,
) -> float:
    """How much longer the restores take because the plan begins slowly."""
    hosts = np.unique(problem.server[~problem.local]).tolist()
    if not hosts:
        return 0.0

    def speed(number: int) -> float:
        """Restores alone that so many restores are worth; a host with n of them is worth n / g(n)."""
        at_once = [max(1, min(int(slots[host]), share_of_host(number, len(hosts)))) for host in hosts]
        worth = sum(float(each / costs[host].at(each)) for host, each in zip(hosts, at_once, strict=True))
        return worth * min(1.0, number / sum(at_once))

    work_s = float(problem.size[~problem.local].sum()) * unit_s
    return slow_start_s(limits, work_s, len(hosts), speed, window_s)


def lacking_bytes(handovers: Sequence[Handover]) -> list[int]:
    """The state that each target has to restore.  An unknown size counts as the largest known, not as nothing."""
    largest = max((each.state_bytes for each in handovers), default=0)
    return [each.to_restore(largest) for each in handovers]


def _running(
    now: float, host: HostId, restoring: Sequence[Handover], fitted: FittedCost, costs: RestoreCosts
) -> list[float]:
    """The time left of the restores that run on the host, in units."""
    here = [each for each in restoring if each.target_host == host]
    factor = fitted.high.at(max(1, len(here)))
    sizes = [costs.size(size) * factor for size in lacking_bytes(here)]
    return [max(0.0, size - (now - each.since) / costs.unit_s) for size, each in zip(sizes, here, strict=True)]


class RestoreRoom:
    """How many more hand-overs may begin: within the limits, and within the slots that their round gives the target.

    New standbys that restore already hold slots too, but never the last one of a host.  While an app may have fewer
    restores in flight than the limit, the hosts that have something to restore share them evenly.
    """

    def __init__(
        self,
        execution: Execution,
        limits: ExecutionLimits,
        is_warm: Callable[[Handover], bool],
        building: Mapping[HostId, int],
        *,
        pace: PlanPace,
        gate: BudgetGate,
        rate: RestoreRate,
        now: float,
    ) -> None:
        """`is_warm`: whether the target of a hand-over that is being prepared needs to restore no more.

        `building` = new standbys that restore on each host.  `gate` = the disruption budgets.
        """
        self._gate = gate
        self._rate, self._now = rate, now
        self._building = building
        self._pace = pace
        self._limits = limits
        self._of_app: dict[AppId, int] = {}
        self._on_host: dict[HostId, int] = {}
        self._restoring: dict[HostId, int] = {}
        self._restores: dict[AppId, dict[HostId, int]] = {}
        """Hand-overs in flight whose target has something to restore, by app and host; 0: those wait."""
        for row in execution.in_flight:
            of_app = self._restores.setdefault(row.app, {})
            for handover in row.handovers:
                if handover.restores and handover.phase not in ENDED:
                    of_app.setdefault(handover.target_host, 0)
                if handover.phase in IN_FLIGHT:
                    restores = handover.phase is HandoverPhase.PREPARING and not is_warm(handover)
                    self._count(handover, restores=restores)

    def has(self, row: Round, handover: Handover) -> bool:
        """Whether this hand-over may begin."""
        limits = self._limits
        # What a lost worker owned pauses already: its restores are held back by no pace, and by no other app.
        if self._of_app.get(row.app, 0) >= (limits.handovers_in_flight if row.lost else self._pace.of(row.app)):
            return False
        if not row.lost and sum(self._of_app.values()) >= limits.handovers_in_cluster:
            return False
        if self._rate.holds(self._now, row, handover) or self._is_slowed(row, handover):
            return False
        if any(self._on_host.get(host, 0) >= limits.handovers_per_host for host in handover.hosts):
            return False
        if not self._gate.may_begin(handover):
            return False
        slots = None if row.recovery is None else row.recovery.slots.get(handover.target_host)
        restoring = self._restoring.get(handover.target_host, 0)
        return slots is None or restoring < max(1, slots - self._building.get(handover.target_host, 0))

    def _is_slowed(self, row: Round, handover: Handover) -> bool:
        """Whether the pace holds this restore back: in all, on its host, or because its target rests."""
        if row.lost or not handover.restores:
            return False
        number, of_app = self._pace.restores(row.app), self._restores[row.app]
        if self._pace.rests(self._now, row.app, handover.target):
            return True
        if not self._pace.is_slowed(row.app):
            return False
        share = share_of_host(number, len(of_app))
        return sum(of_app.values()) >= number or of_app[handover.target_host] >= share

    def take(self, row: Round, handover: Handover) -> None:
        """Count a hand-over that begins."""
        self._count(handover, restores=True)
        if handover.restores:
            self._pace.begun(row.app, handover.target)
        self._gate.begun(handover)
        if not row.lost:
            largest = max((each.state_bytes for each in row.handovers), default=0)
            self._rate.take(self._now, {handover.target_host: handover.to_restore(largest)})

    def _count(self, handover: Handover, *, restores: bool) -> None:
        self._of_app[handover.app] = self._of_app.get(handover.app, 0) + 1
        for host in handover.hosts:
            self._on_host[host] = self._on_host.get(host, 0) + 1
        if handover.restores:
            self._restores[handover.app][handover.target_host] += 1
        if restores:
            host = handover.target_host
            self._restoring[host] = self._restoring.get(host, 0) + 1


class HandoverRestores:
    """Those of the rounds in flight.

    `standbys` = the restores beside them; `costs` = what restores have cost.
    """

    def __init__(self, limits: ExecutionLimits, state: Execution, releases: Releases, pace: PlanPace) -> None:
        """`releases` knows which targets are warm: these restore no more."""
        self._limits = limits
        self._is_warm = releases.is_warm
        self._pace = pace
        self._rate = RestoreRate(limits, state.in_flight)
        self.costs = RestoreCosts()
        self.standbys = StandbyRestores(self.costs, self._rate)

    def running(self, execution: Execution) -> list[Handover]:
        """The hand-overs whose targets restore."""
        rows = (each for row in execution.in_flight for each in row.handovers)
        return [each for each in rows if each.phase is HandoverPhase.PREPARING and not self._is_warm(each)]

    def running_on(self, execution: Execution) -> Counter[HostId]:
        """How many hand-overs restore on each host."""
        return Counter(each.target_host for each in self.running(execution))

    def scheduled(
        self,
        now: float,
        row: Round,
        cores: Mapping[HostId, float],
        running: Sequence[Handover],
        window_s: float | None,
    ) -> Round:
        """The round with its hand-overs in the order in which their targets should restore.

        `cores` of hosts, besides those that are known; `running` = hand-overs that restore now.  `window_s` = the
        length of the windows that let a plan go faster.
        """
        waiting = [each for each in row.handovers if each.phase is HandoverPhase.WAITING]
        if not self._limits.schedule_restores or not waiting:
            return row
        begun = tuple(each for each in row.handovers if each.phase is not HandoverPhase.WAITING)
        ordered, recovery = schedule(
            now,
            waiting,
            running,
            {**self.costs.links.cores, **cores},
            self._limits,
            self.costs,
            self.standbys.running(now),
            lost=row.lost,
            window_s=window_s,
        )
        return replace(row, handovers=begun + ordered, recovery=recovery)

    def start_waiting(self, step: Step, gate: BudgetGate) -> None:
        """Start hand-overs, those of the oldest plan first, as far as there is room for them."""
        building = {host: len(left) for host, left in self.standbys.running(step.now).items()}
        room = RestoreRoom(
            step.execution,
            self._limits,
            self._is_warm,
            building,
            pace=self._pace,
            gate=gate,
            rate=self._rate,
            now=step.now,
        )
        for row in step.execution.in_flight:
            for handover in row.handovers:
                ready = handover.phase is HandoverPhase.WAITING and (handover.wake_at or 0.0) <= step.now
                if ready and room.has(row, handover):
                    handovers.prepare(step, handover)
                    room.take(row, handover)

    def next_at(self, execution: Execution, now: float) -> float | None:
        """When the bytes per second, or the rest of a worker, allow the next restore; None if none waits for that."""
        rows = ((row, each) for row in execution.in_flight for each in row.handovers)
        by_rate = self._rate.next_at((pair for pair in rows if pair[1].phase is HandoverPhase.WAITING), now)
        return min((at for at in (by_rate, self._pace.next_at(now)) if at is not None), default=None)

    def see_hosts(self, now: float, execution: Execution, start_s: float, hosts: Mapping[HostId, HostReport]) -> None:
        """Learn from a window what the links of the hosts bear, beside the restores there."""
        self.costs.links.observe(start_s, hosts, {*self.running_on(execution), *self.standbys.running(now)})

    def ended(self, step: Step, handover: Handover, running: Sequence[Handover]) -> RestoreEnded:
        """A restore has ended: learn from it, and note that its round has got so far; `running` = it and others."""
        row = step.execution.rounds[handover.app]
        self.costs.learn(step.now, handover, running)
        if row.recovery is not None:
            step.set_round(replace(row, recovery=replace(row.recovery, warm_at=step.now)))
        return RestoreEnded(handover=handover, seconds=step.now - handover.since)

    def learned(self) -> LearnedRestores:
        """What restores cost, as far as it was measured, and what new standbys restore now."""
        building: dict[HostId, list[int]] = {}
        for each in self.standbys.building:
            building.setdefault(each.host, []).append(each.lacking_bytes)
        learned = self.costs.learned(self._limits.handovers_per_host)
        return replace(learned, building=building, waiting=self.standbys.waiting)
