"""One of six workers is killed, and its key groups have no standbys: how long until their next owners are warm?

The states and links are those of the drain in `drained.py`.  Every fourth key group has a copy on the disk
of a survivor.  `lost-listed`: the targets of the Elastic Allocator, named at once, so that each restores all its key
groups at the same time.  `lost-scheduled`: the same targets, in DynDL's order.  `lost-targets`: targets by DynDL, too.
The plan begins with the kill; the decider would begin it two windows later.
"""

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.restoring.executed import (
    CORES,
    FIRST_OWNS,
    LEARNED,
    LINK_BYTES_S,
    LISTED,
    Executed,
    host_of,
    setup,
    states,
)
from tests.e2e.steering.app_names import note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.copies import REPORTED_LIMIT_S, copies
from tests.e2e.steering.run_setup import SOURCE
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin
from tests.e2e.steering.standbys import warm
from trimtab_controller.decider.memory.hosts import HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.policies.orphan_placing import OPERATIONS, place_orphans
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import Owned, OwnedTable
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Recovery
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import KeyGroup, WorkerId

AT_ONCE = replace(LISTED, handovers_in_flight=100, handovers_per_host=100)
SCHEDULED = replace(LISTED, schedule_restores=True)
LOST = {"lost-listed": AT_ONCE, "lost-scheduled": SCHEDULED, "lost-targets": SCHEDULED}
SESSION_S = 30.0
"""Longer than all restores take: the group must not give anything away before they are warm."""
LOAD_PCT, BAND_PP = 2.0, 5.0
"""Each key group is assumed to use so much; a worker may get so far from the mean."""
COPY_LACKS = 0.02


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Seconds until all next owners were warm, and until the group had made them the owners, since the kill."""

    method: str
    warm_s: float
    owned_s: float
    link_bound_s: float
    recovery: Recovery | None


class Lose:
    """What is done to the cluster; `found` is the result."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.found: Lost | None = None

    async def __call__(self, cluster: Cluster) -> None:
        """Kill the first worker, and restore what it had at its next owners."""
        await begin(cluster)
        owned = [KeyGroup(cluster.app, SOURCE, partition) for partition in range(FIRST_OWNS)]
        held = {each: worker(1 + place % 5) for place, each in enumerate(owned[LEARNED::4])}
        for each, name in held.items():
            cluster.place([each], (worker(0), name))
        await cluster.publish()
        await warm(cluster)
        for each in held:
            cluster.place([each], (worker(0),))
        await cluster.publish()
        assert await until(lambda: set(held.items()) <= copies(cluster).keys(), REPORTED_LIMIT_S), copies(cluster)
        execution = Executed(cluster, LOST[self.method])
        await execution.carry_out({each: worker(1 + place) for place, each in enumerate(owned[:LEARNED])})
        rest = [each for each in cluster.key_groups if cluster.row(each)[0] == worker(0)]
        sizes = {each: size or 0 for each, size in states(cluster).items()}
        learned = execution.learned if self.method == "lost-targets" else None
        targets = next_owners(cluster, rest, sizes, held, learned)
        lacking = {each: round(COPY_LACKS * sizes[each]) for each in rest if held.get(each) == targets[each]}
        note_fault(cluster.folder)
        cluster.alive.pop(worker(0)).kill()
        killed = time.time()
        warm_s, _ = await execution.carry_out(targets, reason=PlanReason.LOSS, lacking=lacking)
        assert warm_s < SESSION_S, "the group has noticed the loss before all were warm"
        await cluster.settled()
        assert {each: cluster.owners()[each] for each in rest} == {each: [target] for each, target in targets.items()}
        reads: Counter[WorkerId] = Counter()
        for each, target in targets.items():
            if each.operator == SOURCE and each.partition < FIRST_OWNS and each not in lacking:
                reads[target] += cluster.setup.ballast_bytes[each.partition]
        self.found = Lost(
            method=self.method,
            warm_s=warm_s,
            owned_s=time.time() - killed,
            link_bound_s=max(reads.values()) / LINK_BYTES_S,
            recovery=execution.recovery,
        )
        cluster.start(worker(0))
        await cluster.settled(150.0)


def next_owners(
    cluster: Cluster,
    orphans: list[KeyGroup],
    sizes: dict[KeyGroup, int],
    held: dict[KeyGroup, WorkerId],
    learned: LearnedRestores | None,
) -> dict[KeyGroup, WorkerId]:
    """The targets that the decider would choose; `learned` None: by the Elastic Allocator alone."""
    names = [name for name in cluster.alive if name != worker(0)]
    rows = [(each, cluster.row(each)[0]) for each in cluster.key_groups]

    def owned(name: WorkerId) -> list[Owned]:
        return [
            Owned(key_group=each, owner=owner, load=LOAD_PCT, state_bytes=sizes.get(each, 0))
            for each, owner in rows
            if owner == name
        ]

    view = PlannableView(
        app=cluster.app,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(Worker(id=name, host=host_of(name), capacity=1.0, draining=False) for name in names),
        key_groups=[row for name in names for row in owned(name)],
        flows={},
    )
    table = OwnedTable.of(cluster.app, [row for row in owned(worker(0)) if row.key_group in orphans])
    restores = None
    if learned is not None:
        cores = dict.fromkeys(map(host_of, names), CORES)
        on_disk = {each: {name: COPY_LACKS} for each, name in held.items()}
        restores = Restores(learned=learned, held=Held(on_disk=on_disk), cores=cores, band=BAND_PP)
    lost = Orphaned(table=table, owners=(worker(0),), inherited={}, state={})
    found = place_orphans(view, lost, HostsSeen(), {}, operations=OPERATIONS, restores=restores)
    assert found is not None
    return dict(found.targets)


async def lose(method: str, folder: Path) -> Lost:
    """Lose a worker once, in a cluster of its own.  Raises AssertionError when an input was lost."""
    act = Lose(method)
    outcome = await run(Scenario(name=method, setup=replace(setup(), session_s=SESSION_S), act=act), folder)
    assert outcome.complaints == [], outcome.complaints
    assert act.found is not None
    return act.found


def described(found: Lost) -> str:
    """One line."""
    promise = ""
    if found.recovery is not None:
        promise = f"; planned {found.recovery.planned_s:.1f} s, bound {found.recovery.bound_s:.1f} s"
    return (
        f"{found.method:14} all warm {found.warm_s:5.1f} s after the kill, owned after {found.owned_s:5.1f} s "
        f"(session {SESSION_S:g} s); the links alone take {found.link_bound_s:.1f} s{promise}"
    )
