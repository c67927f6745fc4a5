"""One of six workers is drained or lost: `python -m benchmarks.restoring.drained [METHOD ...]` says when all is warm.

The states are unequal (1 to 20), every fourth key group has a standby at its target, and each worker reads changelogs
as if its host had a slow link of its own.  The execution is the real one; targets are given, the same for all methods:
`listed-2` begins two hand-overs at a time as the plan lists them, `listed-8` eight, `scheduled` what DynDL decides.  A
few key groups move first, so that there is something to learn from.  Methods `lost-...` are in `lost.py`.
"""

import asyncio
import logging
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.restoring.executed import FIRST_OWNS, LEARNED, LINK_BYTES_S, LISTED, WORKERS, Executed, setup
from benchmarks.restoring.lost import LOST, described, lose
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.run_setup import SOURCE
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin
from tests.e2e.steering.standbys import warm
from trimtab_controller.execution.state import Recovery
from trimtab_protocol.messages.names import KeyGroup

METHODS = {
    "listed-2": replace(LISTED, handovers_in_flight=2, handovers_per_host=4),
    "listed-8": replace(LISTED, handovers_in_flight=8, handovers_per_host=8),
    "scheduled": replace(LISTED, schedule_restores=True),
}


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The second plan: seconds until all is warm, what was promised, and what the links allow at best."""

    method: str
    warm_s: float
    ended_s: float
    link_bound_s: float
    recovery: Recovery | None
    pauses_s: tuple[float, ...]


class Drain:
    """What is done to the cluster; `found` is the result."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.found: Drained | None = None

    async def __call__(self, cluster: Cluster) -> None:
        """Drain the first worker, after a few key groups from which there is something to learn."""
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
            f"; planned {found.recovery.planned_s:.1f} s, "
            f"bound {found.recovery.bound_s:.1f} s, {slots[0]} to {slots[-1]} at a time on a host"
        )
    return (
        f"{found.method:10} all warm after {found.warm_s:5.1f} s, all moved after {found.ended_s:5.1f} s; "
        f"the links alone take {found.link_bound_s:.1f} s{promise}; "
        f"pause {statistics.median(found.pauses_s):.2f} s in the median, {max(found.pauses_s):.2f} s at most"
    )


def main(methods: Sequence[str]) -> None:
    """Drain or lose a worker with each method."""
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        for method in methods or (*METHODS, *LOST):
            place = Path(folder) / method
            if method in LOST:
                print(described(asyncio.run(lose(method, place))), flush=True)
            else:
                print(describe(asyncio.run(drain(method, place))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
