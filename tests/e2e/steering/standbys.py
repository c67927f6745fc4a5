"""A worker is killed while every key group has a warm standby: the death gives exactly the N-1 plan, and all is warm.

The key groups' loads are unequal, so that a plan by number would look different.
"""

import json
from typing import Any

from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import CLUSTER
from trimtab_controller.decider.memory.standby_choice import Following
from trimtab_controller.decider.memory.standbys import ROUND
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

HEAVIEST = 4
"""The largest load of a key group, and the number of different ones."""


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
