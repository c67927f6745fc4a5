"""One of six workers is drained: `python -m tests.e2e.steering.restores [METHOD ...]` says how long until all is warm.

The states are unequal (1 to 20), every fourth key group has a standby at its target, and each worker reads changelogs
as if its host had a slow link of its own.  The execution is the real one; targets are given, the same for all methods:
`listed-2` begins two hand-overs at a time as the plan lists them, `listed-8` eight, `scheduled` what DynDL decides.  A
few key groups move first, so that there is something to learn from.
"""

import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.run_setup import CLUSTER, SOURCE, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin
from tests.e2e.steering.standbys import warm
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, HandoverPhase, Recovery
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

LISTED = executing.Limits(schedule_restores=False, key_groups_per_handover=1, prepare_timeout_s=90.0)
METHODS = {
    "listed-2": replace(LISTED, handovers_in_flight=2, handovers_per_host=4),
    "listed-8": replace(LISTED, handovers_in_flight=8, handovers_per_host=8),
    "scheduled": replace(LISTED, schedule_restores=True),
}
WORKERS, FIRST_OWNS, LEARNED = 6, 24, 4
UNIT_BYTES, LINK_BYTES_S = 100_000, 5e5
CORES = 4.0
LIMIT_S = 120.0
REPORTED_S = 0.6
"""Statistics come every half second."""


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The second plan: seconds until all is warm, what was promised, and what the links allow at best."""

    method: str
    warm_s: float
    ended_s: float
    link_bound_s: float
    recovery: Recovery | None
    pauses_s: tuple[float, ...]


def setup() -> Setup:
    """Sizes from 1 to 20, in no order."""
    units = [1 + 19 * place / (FIRST_OWNS - 1) for place in range(FIRST_OWNS)]
    random.Random(7).shuffle(units)
    return Setup(
        workers=WORKERS,
        partitions=FIRST_OWNS + 6,
        rate=60.0,
        keys=300,
        preload=600,
        features=(Feature.BALLAST,),
        first_owns=FIRST_OWNS,
        ballast_bytes=tuple(int(unit * UNIT_BYTES) for unit in units),
        link_bytes_s=LINK_BYTES_S,
    )


class Drain:
    """What is done to the cluster; `found` is the result."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.found: Drained | None = None

    async def __call__(self, cluster: Cluster) -> None:
        await begin(cluster)
        moving = [KeyGroup(cluster.app, SOURCE, partition) for partition in range(FIRST_OWNS)]
        targets = {each: worker(1 + place % (WORKERS - 1)) for place, each in enumerate(moving)}
        for each in moving[LEARNED::4]:
            cluster.place([each], (worker(0), targets[each]))
        await cluster.publish()
        await warm(cluster)
        execution = Executed(cluster, METHODS[self.method])
        await execution.carry_out({each: targets[each] for each in moving[:LEARNED]})
        rest = {each: targets[each] for each in moving[LEARNED:]}
        lacking = dict.fromkeys(targets.values(), 0)
        for each, target in rest.items():
            if target not in cluster.row(each):
                lacking[target] += cluster.setup.ballast_bytes[each.partition]
        warm_s, ended_s = await execution.carry_out(rest)
        self.found = Drained(
            method=self.method,
            warm_s=warm_s,
            ended_s=ended_s,
            link_bound_s=max(lacking.values()) / LINK_BYTES_S,
            recovery=execution.recovery,
            pauses_s=execution.pauses_s,
        )
        await cluster.settled()
        assert {each: cluster.owners()[each] for each in rest} == {each: [target] for each, target in rest.items()}


class Executed:
    """The execution in this process, in place of the tiny controller; every worker has a host of its own."""

    def __init__(self, cluster: Cluster, limits: executing.Limits) -> None:
        self._cluster = cluster
        rows = {operator: tuple(present) for operator, present in cluster.rows.items()}
        placement = Placement(cluster=CLUSTER, app=cluster.app, epoch=Epoch(2, 0), owners=rows)
        state = Execution(generation=2, placements={cluster.app: placement})
        self._machine = ExecutionMachine(CLUSTER, limits, state)
        self._acks = len(cluster.agent.acks)
        self._warm_at = 0.0

    @property
    def recovery(self) -> Recovery | None:
        """What the last plan promised."""
        return self._machine.state.rounds[self._cluster.app].recovery

    @property
    def pauses_s(self) -> tuple[float, ...]:
        """The pause of each hand-over of the last plan."""
        rows = self._machine.state.rounds[self._cluster.app].handovers
        return tuple(row.pause_s for row in rows if row.pause_s is not None)

    async def carry_out(self, targets: dict[KeyGroup, WorkerId]) -> tuple[float, float]:
        """Move the key groups; returns the seconds until all are warm, and until the plan has ended."""
        began = time.time()
        await self._perform(self._machine.on_event(began, executing.PlanDecided(plan=self._plan(targets))))
        while self._machine.state.busy(self._cluster.app):
            assert time.time() < began + LIMIT_S, "the drain has not ended"
            await asyncio.sleep(0.02)
            new = self._cluster.agent.acks[self._acks :]
            self._acks += len(new)
            for ack in new:
                here = replace(ack, host=_host(ack.worker))  # the tiny agent speaks for all hosts
                await self._perform(self._machine.on_event(time.time(), executing.AckSeen(ack=here)))
            if (wake_at := self._machine.wake_at) is not None and wake_at <= time.time():
                await self._perform(self._machine.on_tick(time.time()))
            seen = executing.OwnershipSeen(start_s=time.time() - REPORTED_S, owners=self._owners())
            await self._perform(self._machine.on_event(time.time(), seen))
        rows = self._machine.state.rounds[self._cluster.app].handovers
        odd = [(row.id, row.phase, row.detail) for row in rows if row.phase is not HandoverPhase.DONE]
        assert not odd, f"hand-overs that were not done: {odd}"
        for operator, present in self._machine.state.placements[self._cluster.app].owners.items():
            self._cluster.rows[operator] = list(present)
        return self._warm_at - began, time.time() - began

    async def _perform(self, actions: Sequence[executing.Action]) -> None:
        for action in actions:
            match action:
                case executing.Publish(placements=placements, commands=commands):
                    for placement in placements:
                        await self._cluster.write_placement(placement)
                    for command in commands:
                        await self._cluster.agent.send(command)
                case executing.RestoreEnded():
                    self._warm_at = time.time()

    def _owners(self) -> dict[KeyGroup, WorkerId]:
        return {each: names[0] for each, names in self._cluster.owners().items() if len(names) == 1}

    def _plan(self, targets: dict[KeyGroup, WorkerId]) -> Plan:
        _, said = self._cluster.agent.statistics[worker(0)]
        sizes = {sample.key_group: sample.state_bytes for sample in said.key_groups}
        hosts = {name: _host(name) for name in self._cluster.alive}
        return Plan(
            app=self._cluster.app,
            reason=PlanReason.DRAIN,
            detail="drain w0",
            moves=tuple(
                Move(key_group=each, source=worker(0), target=target, state_bytes=sizes[each])
                for each, target in targets.items()
            ),
            hosts=hosts,
            cores=dict.fromkeys(hosts.values(), CORES),
            before=0.0,
            planned=0.0,
            lower_bound=0.0,
            status="given",
        )


def _host(name: WorkerId) -> HostId:
    return HostId(f"h-{name}")


async def drain(method: str, folder: Path) -> Drained:
    """Drain once, in a cluster of its own.  Raises AssertionError when an input was lost or counted twice."""
    act = Drain(method)
    outcome = await run(Scenario(name=f"drained, {method}", setup=setup(), act=act), folder)
    assert outcome.complaints == []
    assert act.found is not None
    return act.found


def describe(found: Drained) -> str:
    """One line."""
    promise = ""
    if found.recovery is not None:
        slots = sorted(found.recovery.slots.values())
        promise = (
            f"; planned {found.recovery.planned_s:.1f} s, at most {found.recovery.high_s:.1f} s, "
            f"bound {found.recovery.bound_s:.1f} s, {slots[0]} to {slots[-1]} at a time on a host"
        )
    return (
        f"{found.method:10} all warm after {found.warm_s:5.1f} s, all moved after {found.ended_s:5.1f} s; "
        f"the links alone take {found.link_bound_s:.1f} s{promise}; "
        f"pause {statistics.median(found.pauses_s):.2f} s in the median, {max(found.pauses_s):.2f} s at most"
    )


def main(methods: Sequence[str]) -> None:
    """Drain with each method."""
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        for method in methods or METHODS:
            print(describe(asyncio.run(drain(method, Path(folder) / method))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
