"""The testbed of the DynDL paper with real restores: `python -m benchmarks.restoring.testbed [--seeds N]`.

Source: DynDL (Applied Sciences 8(11), 2018, 2216), section 6.2.  A job reads a file of ten blocks with two replicas
each, on servers whose cores are busy for 2 to 12 s first.  Here a block is the state of a key group, and a task is its
restore by a real Faust worker: local on the two workers that have a copy on their disks, remote on the three others,
who read all of it from the changelog over a link of their own.  A worker has two slots.

Each method restores ten key groups of its own, with the same replicas and the same busy slots.  LIST, HTA and DynDLOff
know these and decide at the beginning; DELAY and DynDLOn decide when a slot becomes free.  What a restore costs is
measured before, with restores that run alone, and what the model then promises stands beside what was measured.

`Faust` is what stock Faust does: one rebalance gives LIST's servers their key groups, and Faust restores all at once.
It knows no slots and waits for none, so it has no busy ones; all other key groups stand still until it has ended.

`--model LOCAL_S REMOTE_S` plays nothing: what the methods come to by the model, also with other delays.
"""

import argparse
import asyncio
import logging
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dyndl.reconstructions import solve_hta
from tests.e2e.steering.app_names import SLOW_RECOVERY, Feature
from tests.e2e.steering.cluster import Cluster, Move, until, worker
from tests.e2e.steering.copies import REPORTED_LIMIT_S, copies
from tests.e2e.steering.run_setup import SOURCE, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin
from tests.e2e.steering.standbys import warm
from tests.e2e.steering.verdict import pauses
from trimtab_models.dyndl.offline import solve_list, solve_offline
from trimtab_models.dyndl.online import OnlineParams, Start, WaitingPolicy, WaitingRule, solve_online
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost
from trimtab_models.solving import Infeasible, Never
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import KeyGroup, WorkerId

SERVERS, SLOTS, BLOCKS, REPLICAS = 5, 2, 10, 2
BUSY_S = (2.0, 12.0)
"""How long a slot is busy first, as the background processes of the paper."""
WAIT_S = 3.0
"""The delay of DELAY, and the first one of DynDLOn, as in the paper."""
WAITS_S = (3.0, 6.0, 10.0)
"""Those of the paper's figures."""
BLOCK_BYTES, LINK_BYTES_S = 1_000_000, 5e5
TRIED = 6
"""Restores that are measured alone before, half of them local."""
LIMIT_S = 90.0
PROCESSED_S = 3.0
"""After this, workers have written down what they have processed."""
LOOK_S = 0.02
RATE = 60.0
"""Events per second: one per key group in 1.2 s."""
LAYOUTS = 100

Solver = Callable[..., ScheduleResult | Infeasible]
OFFLINE: dict[str, Solver] = {"LIST": solve_list, "HTA": solve_hta, "DynDLOff": solve_offline}
ONLINE = {"DELAY": WaitingRule.FIXED, "DynDLOn": WaitingRule.ADAPTIVE}
FAUST = "Faust"
METHODS = (*OFFLINE, *ONLINE, FAUST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What all methods have in common: `replicas` of each block, and seconds until each slot is free."""

    replicas: tuple[tuple[int, ...], ...]
    busy_s: tuple[float, ...]

    @classmethod
    def of(cls, seed: int) -> "Layout":
        """The layout of a seed."""
        chance = random.Random(seed)
        return cls(
            replicas=tuple(tuple(sorted(chance.sample(range(SERVERS), REPLICAS))) for _ in range(BLOCKS)),
            busy_s=tuple(chance.uniform(*BUSY_S) for _ in range(SERVERS * SLOTS)),
        )

    def problem(self, local_s: float, remote_s: float, wait_s: float = WAIT_S) -> ScheduleProblem:
        """The problem of the model; its unit is a local restore."""
        cost = AffineCost(a=1.0, b=max(0.0, remote_s / local_s - 1.0), cap=SLOTS)
        return ScheduleProblem(
            core_load=np.array(self.busy_s) / local_s,
            server_of=np.repeat(np.arange(SERVERS), SLOTS),
            replicas=self.replicas,
            costs=RemoteTaskCosts([cost] * SERVERS),
            wait=wait_s / local_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a method came to; `planned_s` by the model (None: it has no plan), `bound_s` = no method is faster.

    `local_s`, `remote_s` = medians of the restores of this run; `others_s` = longest pause of a key group that stays.
    """

    method: str
    warm_s: float
    remote: int
    planned_s: float | None = None
    bound_s: float | None = None
    local_s: float | None = None
    remote_s: float | None = None
    others_s: float | None = None

    def __str__(self) -> str:
        told = {
            "planned": self.planned_s,
            "bound": self.bound_s,
            "a local one": self.local_s,
            "a remote one": self.remote_s,
            "others paused for at most": self.others_s,
        }
        rest = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in told.items() if seconds is not None)
        return f"{self.method:9} all warm after {self.warm_s:5.1f} s; {self.remote} of {BLOCKS} remote; {rest}"


class Testbed:
    """What is done to the cluster; `found` is the result."""

    def __init__(self, seed: int, methods: Sequence[str]) -> None:
        self._layout = Layout.of(seed)
        self._methods = methods
        self._placing = asyncio.Lock()
        self.found: list[Restored] = []
        self.costs_s = (0.0, 0.0)
        """Of a local restore and of a remote one, each alone."""

    async def __call__(self, cluster: Cluster) -> None:
        """Measure what restores cost, then play each method."""
        await begin(cluster)
        tried = [KeyGroup(cluster.app, SOURCE, partition) for partition in range(TRIED)]
        await self._copy(cluster, {each: (place % SERVERS,) for place, each in enumerate(tried[: TRIED // 2])})
        took = [await self._restore(cluster, each, place % SERVERS) for place, each in enumerate(tried)]
        self.costs_s = local_s, remote_s = statistics.median(took[: TRIED // 2]), statistics.median(took[TRIED // 2 :])
        print(f"a local restore takes {local_s:.2f} s, a remote one {remote_s:.2f} s, each alone", flush=True)
        problem = self._layout.problem(local_s, remote_s)
        for number, method in enumerate(self._methods):
            first = TRIED + number * BLOCKS
            blocks = [KeyGroup(cluster.app, SOURCE, first + block) for block in range(BLOCKS)]
            await self._copy(cluster, dict(zip(blocks, self._layout.replicas, strict=True)))
            if method == FAUST:
                self.found.append(await _rebalanced(cluster, blocks, problem))
            else:
                self.found.append(await self._play(cluster, method, blocks, problem, local_s))
            print(self.found[-1], flush=True)
        await cluster.settled()

    async def _copy(self, cluster: Cluster, replicas: dict[KeyGroup, tuple[int, ...]]) -> None:
        """Have these workers follow the key groups, and then close what they have."""
        for each, servers in replicas.items():
            cluster.place([each], (worker(0), *map(_named, servers)))
        await cluster.publish()
        await warm(cluster)
        for each in replicas:
            cluster.place([each], (worker(0),))
        await cluster.publish()
        wanted = {(each, _named(server)) for each, servers in replicas.items() for server in servers}
        assert await until(lambda: wanted <= copies(cluster).keys(), REPORTED_LIMIT_S), copies(cluster)

    async def _play(
        self, cluster: Cluster, method: str, blocks: Sequence[KeyGroup], problem: ScheduleProblem, unit_s: float
    ) -> Restored:
        took: list[tuple[int, int, float]] = []
        at, began = time.time(), time.monotonic()

        async def restore(task: int, server: int) -> None:
            took.append((task, server, await self._restore(cluster, blocks[task], server)))

        if method in OFFLINE:
            await _as_planned(_schedule(OFFLINE[method], problem), self._layout, restore)
        else:
            policy = WaitingPolicy(problem, ONLINE[method])
            await _on_the_way(policy, self._layout, unit_s, began, restore)
        warm_s = time.monotonic() - began
        others_s = await _others_paused(cluster, method, blocks, at, warm_s)
        assert sorted(task for task, _, _ in took) == list(range(BLOCKS))
        times = {
            kind: [each[2] for each in took if (each[1] in problem.replicas[each[0]]) is kind] for kind in (True, False)
        }
        return Restored(
            method=method,
            warm_s=warm_s,
            remote=len(times[False]),
            planned_s=_planned_s(method, problem, unit_s),
            bound_s=unit_s * _schedule(solve_offline, problem).lower_bound,
            local_s=statistics.median(times[True]) if times[True] else None,
            remote_s=statistics.median(times[False]) if times[False] else None,
            others_s=others_s,
        )

    async def _restore(self, cluster: Cluster, key_group: KeyGroup, server: int) -> float:
        """Let a worker restore a key group, and hand it over; the seconds until it was warm."""
        source, target = worker(0), _named(server)
        fields: dict[str, Any] = {"key_groups": (key_group,), "source": source, "target": target}
        began = time.monotonic()
        async with self._placing:
            cluster.place([key_group], (source, target))
            await cluster.publish()
            fields["handover"] = f"handover-{cluster.epoch}"
            prepare = await cluster.command(CommandKind.PREPARE, target, limit_s=LIMIT_S, **fields)
        prepared = await cluster.answer(prepare, {Phase.PREPARED}, LIMIT_S)
        assert prepared is not None, f"{key_group} is not warm on {target} after {LIMIT_S:g} s"
        assert prepared.phase is Phase.PREPARED, prepared
        seconds = time.monotonic() - began
        async with self._placing:
            cluster.place([key_group], (target,))
            await cluster.publish()
            fields["generation"] = prepared.generation
            await cluster.command(CommandKind.RELEASE, source, limit_s=LIMIT_S, **fields)
        took = await cluster.answer(prepare, {Phase.TOOK}, LIMIT_S)
        assert took is not None, f"{key_group} was not taken by {target}"
        assert took.phase is Phase.TOOK, took
        return seconds


async def _rebalanced(cluster: Cluster, blocks: Sequence[KeyGroup], problem: ScheduleProblem) -> Restored:
    """Faust restores all blocks at once, on the servers that LIST chooses."""
    servers = [core // SLOTS for core in _schedule(solve_list, problem).core.tolist()]
    for each, server in zip(blocks, servers, strict=True):
        cluster.place([each], (_named(server),))
    slow = cluster.folder / SLOW_RECOVERY
    slow.touch()
    await cluster.publish()
    at = time.time()
    assert await cluster.rejoin(LIMIT_S), "no rebalance"
    await cluster.settled(LIMIT_S)
    warm_s = time.time() - at
    slow.unlink()
    return Restored(
        method=FAUST,
        warm_s=warm_s,
        remote=sum(server not in replicas for server, replicas in zip(servers, problem.replicas, strict=True)),
        others_s=await _others_paused(cluster, FAUST, blocks, at, warm_s),
    )


async def _others_paused(cluster: Cluster, method: str, blocks: Sequence[KeyGroup], at: float, seconds: float) -> float:
    """The longest time without an event of a key group that stays; `RATE` says how exact that is."""
    await asyncio.sleep(PROCESSED_S)
    cluster.moves.append(Move(at=at, kind=method, key_groups=tuple(blocks), source=worker(0), target=worker(1)))
    return pauses(cluster, seconds)[f"{method}, others"].longest


def _planned_s(method: str, problem: ScheduleProblem, unit_s: float) -> float:
    """When all is warm, by the model."""
    if method in OFFLINE:
        return unit_s * _schedule(OFFLINE[method], problem).score.makespan
    played = _schedule(solve_online, problem, params=OnlineParams(waiting=ONLINE[method]))
    assert played.event_makespan is not None
    return unit_s * played.event_makespan


def _schedule(solver: Solver, problem: ScheduleProblem, **params: Any) -> ScheduleResult:
    """The answer of a method of the paper, which here always has one."""
    found = solver(problem, stop=Never(), **params)
    assert isinstance(found, ScheduleResult), found
    return found


Restore = Callable[[int, int], Any]


async def _as_planned(found: ScheduleResult, layout: Layout, restore: Restore) -> None:
    """Each slot restores what was assigned to it, one after the other."""

    async def slot(core: int) -> None:
        await asyncio.sleep(layout.busy_s[core])
        for task in np.flatnonzero(found.core == core).tolist():
            await restore(task, core // SLOTS)

    await asyncio.gather(*(slot(core) for core in sorted(set(found.core.tolist()))))


async def _on_the_way(policy: WaitingPolicy, layout: Layout, unit_s: float, began: float, restore: Restore) -> None:
    """Each slot asks the policy when it is free, and again while it waits."""
    begun: deque[int] = deque()

    async def slot(core: int) -> None:
        await asyncio.sleep(layout.busy_s[core])
        server = core // SLOTS
        idle_since = (time.monotonic() - began) / unit_s
        while len(begun) < BLOCKS:
            now = (time.monotonic() - began) / unit_s
            decision = policy.decide(now, server, idle_since)
            if isinstance(decision, Start):
                begun.append(decision.task)
                await restore(decision.task, server)
                idle_since = (time.monotonic() - began) / unit_s
            else:
                await asyncio.sleep(LOOK_S)

    await asyncio.gather(*(slot(core) for core in range(SERVERS * SLOTS)))


def _named(server: int) -> WorkerId:
    """The worker of a server; the first worker owns all blocks."""
    return worker(1 + server)


def setup(methods: int) -> Setup:
    """The first worker owns the blocks of all methods, which have the same size."""
    blocks = TRIED + methods * BLOCKS
    partitions = blocks + SERVERS
    return Setup(
        workers=1 + SERVERS,
        partitions=partitions,
        rate=RATE,
        keys=4 * partitions,
        preload=600,
        features=(Feature.BALLAST,),
        first_owns=blocks,
        ballast_bytes=(BLOCK_BYTES,) * blocks,
        link_bytes_s=LINK_BYTES_S,
    )


async def play(seed: int, methods: Sequence[str], folder: Path) -> Testbed:
    """All methods once.  Raises AssertionError when an input was lost or counted twice."""
    act = Testbed(seed, methods)
    outcome = await run(Scenario(name=f"testbed, seed {seed}", setup=setup(len(methods)), act=act), folder)
    assert outcome.complaints == [], outcome.complaints
    return act


def main() -> None:
    """Play the methods and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="layouts of replicas and busy slots (2)")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD", help=", ".join(METHODS)
    )
    seconds = ("LOCAL_S", "REMOTE_S")
    parser.add_argument("--model", nargs=2, type=float, metavar=seconds, help="what restores take; plays nothing")
    options = parser.parse_args()
    if options.model:
        print(modelled(*options.model))
        return
    logging.basicConfig(level=logging.CRITICAL)
    rows: dict[str, list[Restored]] = {method: [] for method in options.methods}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            print(f"seed {seed}", flush=True)
            played = asyncio.run(play(seed, options.methods, Path(folder) / str(seed)))
            for each in played.found:
                rows[each.method].append(each)
    print(table(rows))
    print(f"by the model, in {LAYOUTS} layouts, median and 90th percentile: {modelled(*played.costs_s)}")


def modelled(local_s: float, remote_s: float) -> str:
    """What each method comes to in many layouts, if a restore takes so long."""
    told = []
    for method, wait_s in [(each, WAIT_S) for each in OFFLINE] + [(each, wait) for each in ONLINE for wait in WAITS_S]:
        problems = (Layout.of(seed).problem(local_s, remote_s, wait_s) for seed in range(LAYOUTS))
        found = sorted(_planned_s(method, each, local_s) for each in problems)
        name = f"{method} {wait_s:g}" if method in ONLINE else method
        told.append(f"{name}: {statistics.median(found):.1f}, {found[LAYOUTS * 9 // 10]:.1f} s")
    return "; ".join(told)


def table(rows: Mapping[str, Sequence[Restored]]) -> str:
    """A line for each method, with the figures of all seeds."""

    def cell(values: Iterable[float | None]) -> str:
        told = [f"{value:.1f}" for value in values if value is not None]
        return ", ".join(told) + " s" if told else "-"

    heads = ("planned", "all warm after", "bound", "remote of 10", "others paused")
    lines = [f"{'':10}" + "".join(f"{head:>18}" for head in heads)]
    for method, its in rows.items():
        cells = (
            cell(each.planned_s for each in its),
            cell(each.warm_s for each in its),
            cell(each.bound_s for each in its),
            ", ".join(str(each.remote) for each in its),
            cell(each.others_s for each in its),
        )
        lines.append(f"{method:10}" + "".join(f"{text:>18}" for text in cells))
    return "\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
