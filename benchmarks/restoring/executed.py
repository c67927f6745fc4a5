"""The real execution in this process, beside real workers with slow links and unequal states."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.run_setup import CLUSTER, Setup
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution, HandoverPhase, Recovery
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_controller.rows import Site
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

LISTED = executing.ExecutionLimits(
    schedule_restores=False, key_groups_per_handover=1, prepare_timeout_s=90.0, restores_at_first=1000
)
"""Plans begin at full speed: no windows tell this execution how the job is."""
WORKERS, FIRST_OWNS, LEARNED = 6, 24, 4
UNIT_BYTES, LINK_BYTES_S = 100_000, 5e5
CORES = 4.0
LIMIT_S = 120.0
REPORTED_S = 0.6
"""Statistics come every half second."""


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


class Executed:
    """The execution in this process, in place of the tiny controller; who is not in `hosts` has a host of its own."""

    def __init__(
        self,
        cluster: Cluster,
        limits: executing.ExecutionLimits,
        hosts: Mapping[WorkerId, HostId] = MappingProxyType({}),
    ) -> None:
        self._cluster = cluster
        self._hosts = hosts
        rows = {operator: tuple(present) for operator, present in cluster.rows.items()}
        placement = Placement(cluster=CLUSTER, app=cluster.app, epoch=Epoch(2, 0), owners=rows)
        state = Execution(generation=2, placements={cluster.app: placement})
        self._machine = ExecutionMachine(CLUSTER, limits, state)
        sites = {name: Site(host=host) for name, host in self._hosts_now().items()}
        now = time.time()
        self._machine.on_event(now, executing.WindowSeen(start_s=now, end_s=now, hosts={}, sites=sites))
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

    @property
    def learned(self) -> LearnedRestores:
        """What restores cost, as far as it was measured."""
        return self._machine.learned()

    async def carry_out(
        self,
        targets: Mapping[KeyGroup, WorkerId],
        *,
        reason: PlanReason = PlanReason.DRAIN,
        lacking: Mapping[KeyGroup, int] = MappingProxyType({}),
    ) -> tuple[float, float]:
        """Move the key groups; returns the seconds until all are warm, and until the plan has ended.

        `lacking` = bytes that targets with a copy on their disks lack.
        """
        began = time.time()
        plan = self._plan(targets, reason, lacking)
        await self._perform(self._machine.on_event(began, executing.PlanDecided(plan=plan)))
        while self._machine.state.busy(self._cluster.app):
            assert time.time() < began + LIMIT_S, "the plan has not ended"
            await asyncio.sleep(0.02)
            new = self._cluster.agent.acks[self._acks :]
            self._acks += len(new)
            for ack in new:
                here = replace(ack, host=self._host_of(ack.worker))  # the tiny agent speaks for all hosts
                await self._perform(self._machine.on_event(time.time(), executing.AckSeen(ack=here)))
            if (wake_at := self._machine.wake_at) is not None and wake_at <= time.time():
                await self._perform(self._machine.on_tick(time.time()))
            now = time.time()
            seen = executing.WindowSeen(start_s=now - REPORTED_S, end_s=now, owners=self._owners())
            await self._perform(self._machine.on_event(now, seen))
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

    def _host_of(self, name: WorkerId) -> HostId:
        return self._hosts.get(name, host_of(name))

    def _hosts_now(self) -> dict[WorkerId, HostId]:
        return {name: self._host_of(name) for name in self._cluster.alive}

    def _owners(self) -> dict[KeyGroup, WorkerId]:
        return {each: names[0] for each, names in self._cluster.owners().items() if len(names) == 1}

    def _plan(self, targets: Mapping[KeyGroup, WorkerId], reason: PlanReason, lacking: Mapping[KeyGroup, int]) -> Plan:
        sizes, hosts = states(self._cluster), self._hosts_now()
        return Plan(
            app=self._cluster.app,
            reason=reason,
            detail=f"{reason} of w0",
            moves=tuple(
                Move(
                    key_group=each,
                    source=worker(0),
                    target=target,
                    state_bytes=sizes[each],
                    lacking_bytes=lacking.get(each),
                )
                for each, target in targets.items()
            ),
            hosts=hosts,
            cores=dict.fromkeys(hosts.values(), CORES),
            before=0.0,
            planned=0.0,
            lower_bound=0.0,
            status="given",
        )


def states(cluster: Cluster) -> dict[KeyGroup, int | None]:
    """Bytes of what the first worker owns, by its last word."""
    _, said = cluster.agent.statistics[worker(0)]
    return {sample.key_group: sample.state_bytes for sample in said.key_groups}


def host_of(name: WorkerId) -> HostId:
    """Every worker has a host of its own."""
    return HostId(f"h-{name}")
