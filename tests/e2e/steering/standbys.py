"""A worker is killed while every key group has a warm standby: the death gives exactly the N-1 plan, and all is warm.

The key groups' loads are unequal, so that a plan by number would look different.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.e2e.steering.app_names import note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import CLUSTER
from tests.e2e.steering.scenarios import begin
from trimtab_controller.decider.memory.standby_choice import Following
from trimtab_controller.decider.memory.standbys import ROUND
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

HEAVIEST = 4
"""The largest load of a key group, and the number of different ones."""


async def crash(cluster: Cluster) -> None:
    """kill -9 of one worker, which starts again at the end."""
    await begin(cluster)
    name_standbys(cluster, 1)
    await cluster.publish()
    await warm(cluster)
    victim = worker(0)
    planned = {each: cluster.row(each)[1] for each in owned_by(cluster, victim)}
    assert len(set(planned.values())) == len(cluster.alive) - 1, "orphans are spread"
    foretold = _loads(cluster, {each: planned.get(each, cluster.row(each)[0]) for each in cluster.key_groups})
    noted = {name: len(restored(cluster, name)) for name in cluster.alive}
    note_fault(cluster.folder)
    cluster.alive.pop(victim).kill()
    await cluster.settled()
    owners = cluster.owners()
    assert {each: owners[each] for each in planned} == {each: [name] for each, name in planned.items()}
    assert _loads(cluster, {each: owners[each][0] for each in cluster.key_groups}) == foretold
    assert max(foretold.values()) - min(foretold.values()) <= HEAVIEST, f"balanced after the loss: {foretold}"
    for name in cluster.alive:
        rows = restored(cluster, name)[noted[name] :]
        assert {row["title"] for row in rows} == {"active"}, f"Faust's own standbys: {rows}"
        most = max(row["records"] for row in rows)
        assert most <= cluster.setup.rate, f"{name} restored {most} records"
    cluster.start(victim)
    await cluster.settled(150.0)


def name_standbys(cluster: Cluster, wanted: int) -> None:
    """So many each, as the controller would: every worker counts as a host."""
    rows = {operator: tuple(present) for operator, present in cluster.rows.items()}
    view = PlannableView(
        app=cluster.app,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(Worker(id=n, host=HostId(f"h-{n}"), capacity=1.0, draining=False) for n in cluster.alive),
        key_groups=[
            Owned(key_group=k, owner=cluster.row(k)[0], load=_load(k), state_bytes=None) for k in cluster.key_groups
        ],
        flows={},
    )
    present = Placement(cluster=CLUSTER, app=cluster.app, epoch=cluster.epoch, owners=rows)
    for key_group, row in Following.of(view, present).choose(view, wanted, ROUND).rows.items():
        cluster.place([key_group], row)


def _load(key_group: KeyGroup) -> float:
    return 1.0 + key_group.partition % HEAVIEST


def _loads(cluster: Cluster, owners: Mapping[KeyGroup, WorkerId]) -> dict[WorkerId, float]:
    """The load of each worker that owns something."""
    found: dict[WorkerId, float] = {}
    for key_group, owner in owners.items():
        found[owner] = found.get(owner, 0.0) + _load(key_group)
    return found


async def warm(cluster: Cluster) -> None:
    """Wait until every key group has the standbys of its row, all but up to date, and no others."""
    assert await until(lambda: _is_warm(cluster), 60.0), f"not warm: {_warm(cluster)}"


def owned_by(cluster: Cluster, name: WorkerId) -> list[KeyGroup]:
    return [each for each in cluster.key_groups if cluster.row(each)[0] == name]


def _warm(cluster: Cluster) -> dict[WorkerId, dict[str, Any]]:
    """What the living follow, by their own word."""
    files = {name: cluster.folder / f"{name}.warm" for name in cluster.alive}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def _is_warm(cluster: Cluster) -> bool:
    """Whether every key group has the standby of its row, and that has all but the last second."""
    wanted = {n: sorted(str(k) for k in cluster.key_groups if n in cluster.row(k)[1:]) for n in cluster.alive}
    said = _warm(cluster)
    lags = [row["lag"] for row in said.values()]
    return {n: row["key_groups"] for n, row in said.items()} == wanted and max(lags) <= cluster.setup.rate


def restored(cluster: Cluster, name: WorkerId) -> list[dict[str, Any]]:
    """What Faust had still to read from changelogs, each time that it restored tables."""
    log = cluster.folder / f"{name}.restored"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
