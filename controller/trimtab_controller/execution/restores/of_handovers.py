"""The restores of hand-overs: in which order they begin, how many at a time, and what they have cost.

They share links and slots of their hosts with new standbys (`of_standbys.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trimtab_controller.execution import handovers
from trimtab_controller.execution.budget import BudgetGate
from trimtab_controller.execution.events import ExecutionLimits, HostReport, RestoreEnded
from trimtab_controller.execution.pace import PlanPace
from trimtab_controller.execution.releases import Releases
from trimtab_controller.execution.restores.costs import LearnedRestores, RestoreCosts
from trimtab_controller.execution.restores.of_standbys import StandbyRestores
from trimtab_controller.execution.restores.order import RestoreRoom, schedule
from trimtab_controller.execution.restores.rate import RestoreRate
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Round
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import HostId


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
        found = schedule(
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
        return replace(row, handovers=begun + found.handovers, recovery=found.recovery)

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
        return replace(self.costs.learned(self._limits.handovers_per_host), building=building)
