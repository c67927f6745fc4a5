"""Real workers under the real decider and execution: one only reports, and one restarts during a round.

The windows are made from what the plug-ins say.  Only the loads are played: a key group costs what its first owner
made it cost, so that the plans do not depend on how busy the machine is.
"""

import asyncio
import time

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.run_setup import CLUSTER, HOST
from tests.e2e.steering.scenarios import begin
from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Adopted, Decision, Planned, Skip, StandbysPlaced, describe
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.execution.windows import ownership
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

WINDOW_S = 1.0
FRESH_S = 1.6
"""Statistics come every half second; a worker that has sent none for so long has not reported the window."""
HEAVY, LIGHT = 0.06, 0.02
"""Cores that a key group costs: those that the first worker owns in the beginning, and the others."""
SETTINGS = Settings(max_migrations=4, min_interval_s=1.0, min_windows=1, smoothing=1.0)
NEEDS = Requirements(max_unknown=0.4)
"""Of four workers one is a quarter of the app."""
LIMITS = executing.ExecutionLimits(
    handovers_in_flight=1, key_groups_per_handover=2, prepare_timeout_s=10.0, handover_timeout_s=6.0
)


class Controller:
    """Decider and execution in this process, in place of the tiny controller."""

    def __init__(self, cluster: Cluster, load: dict[KeyGroup, float]) -> None:
        self._cluster = cluster
        self._load = load
        self._execution = ExecutionMachine(CLUSTER, LIMITS, Execution(generation=2))
        self._decider = Decider(SETTINGS, NEEDS, self._execution.state, acting=True)
        self._acks = len(cluster.agent.acks)
        self.decisions: list[Decision] = []
        self.handovers: list[HandoverPhase] = []

    @property
    def busy(self) -> bool:
        return self._execution.state.busy(self._cluster.app)

    @property
    def fixed(self) -> dict[WorkerId, SkipReason]:
        """The workers that the last window has shown to be fixed."""
        gaps = self._decider.known.gaps.get(self._cluster.app)
        return {each.id: each.reason for each in gaps.fixed} if gaps else {}

    async def window(self) -> None:
        """Wait for a window to end, hearing acks meanwhile, and decide on it."""
        start_s = time.time()
        while time.time() < start_s + WINDOW_S:
            await asyncio.sleep(0.05)
            new = self._cluster.agent.acks[self._acks :]
            self._acks += len(new)
            for ack in new:
                await self._execute(executing.AckSeen(ack=ack))
            if (wake_at := self._execution.wake_at) is not None and wake_at <= time.time():
                await self._perform(self._execution.on_tick(time.time()))
        snapshot = self._snapshot(start_s)
        if self.busy:
            await self._execute(executing.WindowSeen(start_s=start_s, end_s=time.time(), owners=ownership(snapshot)))
        await self._decide(deciding.SnapshotArrived(snapshot=snapshot))

    async def _decide(self, event: deciding.Event) -> None:
        for action in self._decider.on_event(time.time(), event):
            match action:
                case deciding.Solve(view=view):
                    await self._decide(deciding.SolverAnswered(answer=answer(question_of(view, SETTINGS, 0.2))))
                case deciding.Decided(decision=decision):
                    self.decisions.append(decision)
                    await self._carry_out(decision)

    async def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Planned(plan=plan, standbys=rows):
                await self._execute(executing.PlanDecided(plan=plan, standbys=rows))
            case Adopted(app=app, owners=owners, standbys=rows):
                await self._execute(executing.PlacementWanted(app=app, owners=owners, standbys=rows))
            case StandbysPlaced(app=app, rows=rows):
                await self._execute(executing.StandbysWanted(app=app, rows=rows))

    async def _execute(self, event: executing.Event) -> None:
        await self._perform(self._execution.on_event(time.time(), event))

    async def _perform(self, actions: list[executing.Action]) -> None:
        for action in actions:
            match action:
                case executing.Publish(execution=execution, placements=placements, commands=commands):
                    for placement in placements:
                        await self._cluster.write_placement(placement)
                    for command in commands:
                        await self._cluster.agent.send(command)
                    await self._decide(deciding.ExecutionChanged(execution=execution))
                case executing.HandoverEnded(handover=handover):
                    self.handovers.append(handover.phase)

    def _snapshot(self, start_s: float) -> Snapshot:
        """What the plug-ins said of this window; all workers run on one host."""
        agent, now = self._cluster.agent, time.time()
        said = {
            name: statistics
            for name, (at, statistics) in agent.statistics.items()
            if at > now - FRESH_S and name in self._cluster.alive
        }
        return Snapshot(
            cluster=CLUSTER,
            start_ms=round(1000 * start_s),
            end_ms=round(1000 * now),
            published_ms=round(1000 * now),
            hosts_seen=1,
            hosts_expected=1,
            watermark_ms=None,
            late_rows=0,
            hosts=(HostWindow(host=HOST, covered_s=WINDOW_S, cpu=None, cores=4.0, basis=Basis.CONFIG),),
            nodes=tuple(
                NodeWindow(
                    worker=name,
                    host=HOST,
                    app=self._cluster.app,
                    state=statistics.state,
                    capacity=1.0,
                    covered_s=WINDOW_S,
                    cpu=None,
                    complete=statistics.complete,
                    steering=agent.hellos[name].steering,
                    generation=statistics.generation,
                    operators=agent.hellos[name].operators or None,
                    standbys=statistics.standbys,
                    reason=agent.hellos[name].reason,
                )
                for name, statistics in said.items()
            ),
            key_groups=tuple(
                KeyGroupWindow(
                    key_group=key_group,
                    worker=name,
                    covered_s=WINDOW_S,
                    cpu=self._load[key_group],
                    tuples_in_s=1.0,
                )
                for key_group, name in self._owners(said).items()
            ),
        )

    def _owners(self, said: dict[WorkerId, object]) -> dict[KeyGroup, WorkerId]:
        found = self._cluster.owners()
        return {key_group: names[0] for key_group, names in found.items() if names[0] in said}


async def never_whole(cluster: Cluster) -> None:
    """Balanced among those that can be, without a key group to or from the one that only reports."""
    await begin(cluster)
    reporter = worker(cluster.setup.workers - 1)
    assert await cluster.terminate(reporter) == 0
    cluster.start(reporter, (Feature.IN_MEMORY,))
    await cluster.settled(150.0)
    kept = _owned(cluster, reporter)
    assert kept, "the worker that only reports says what it owns"
    heavy = set(_owned(cluster, worker(0)))
    controller = Controller(cluster, {each: HEAVY if each in heavy else LIGHT for each in cluster.key_groups})
    while not controller.busy:
        await controller.window()
    assert controller.fixed == {reporter: SkipReason.WORKER_NOT_STEERING}
    restarting = next(name for name in map(worker, (1, 2)) if not _leads(cluster, name))
    assert await cluster.terminate(restarting) == 0
    fixed = set[SkipReason]()
    for number in range(60):
        await controller.window()
        if restarting in controller.fixed:
            fixed.add(controller.fixed[restarting])
        if number == 2:
            cluster.start(restarting)
        if number > 5 and set(controller.fixed) == {reporter} and _is_calm(controller.decisions[-1]):
            break
    for decision in controller.decisions:
        print(f"  {describe(decision)}")
    assert _is_calm(controller.decisions[-1]), "not balanced in a minute"
    assert fixed & {SkipReason.WORKER_MISSING, SkipReason.WORKER_NOT_RUNNING}
    assert HandoverPhase.DONE in controller.handovers
    plans = [decision.plan for decision in controller.decisions if isinstance(decision, Planned)]
    assert {reporter}.isdisjoint(end for plan in plans for move in plan.moves for end in (move.source, move.target))
    assert _owned(cluster, reporter) == kept
    await cluster.settled(150.0)


def _owned(cluster: Cluster, name: WorkerId) -> list[KeyGroup]:
    return sorted(key_group for key_group, names in cluster.owners().items() if names == [name])


def _leads(cluster: Cluster, name: WorkerId) -> bool:
    """Whether the worker has been the group's leader; if the leader goes, one that only reports may become it."""
    return "Elected group leader" in cluster.alive[name].log.read_text()


def _is_calm(decision: Decision) -> bool:
    return isinstance(decision, Skip) and decision.reason is SkipReason.INSIDE_BAND
