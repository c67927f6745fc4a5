"""A worker is killed that nobody follows: its key groups go to those who followed them before, and have copies of them.

Their databases are on the disks of the others, who restore only what was written since.
"""

import time

from tests.e2e.steering.app_names import note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.scenarios import begin
from tests.e2e.steering.standbys import owned_by, restored, warm
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.names import KeyGroup, WorkerId

REPORTED_LIMIT_S = 60.0


async def lose(cluster: Cluster) -> None:
    """kill -9 of one worker without standbys, which starts again at the end."""
    await begin(cluster)
    victim = worker(1)
    others = [name for name in cluster.alive if name != victim]
    followed = {each: others[place % len(others)] for place, each in enumerate(owned_by(cluster, victim))}
    for each, name in followed.items():
        cluster.place([each], (victim, name))
    await cluster.publish()
    await warm(cluster)
    for each in followed:
        cluster.place([each], (victim,))
    closed_at = time.time()
    await cluster.publish()
    assert await until(lambda: set(followed.items()) <= copies(cluster).keys(), REPORTED_LIMIT_S), copies(cluster)
    written = {each.key_group: each.lag_records or 0 for each in cluster.agent.statistics[victim][1].key_groups}
    assert all(0 < copies(cluster)[each, name] <= written[each] for each, name in followed.items())

    noted = {name: len(restored(cluster, name)) for name in others}
    note_fault(cluster.folder)
    cluster.alive.pop(victim).kill()
    await cluster.settled()
    owners = cluster.owners()
    assert {each: owners[each] for each in followed} == {each: [name] for each, name in followed.items()}
    for name in others:
        whole = sum(records for each, records in written.items() if followed[each] == name)
        most = max(row["records"] for row in restored(cluster, name)[noted[name] :])
        print(f"{name} restored {most} of {whole} records, {time.time() - closed_at:.0f} s after it closed its copies")
        assert most <= whole / 2, f"{name} restored {most} of {whole} records"
    cluster.start(victim)
    await cluster.settled(150.0)


def copies(cluster: Cluster) -> dict[tuple[KeyGroup, WorkerId], int]:
    """The records of the copies that the living workers report."""
    said: list[tuple[WorkerId, tuple[Copy, ...]]] = [
        (name, cluster.agent.statistics[name][1].copies) for name in cluster.alive if name in cluster.agent.statistics
    ]
    return {
        (KeyGroup(cluster.app, each.operator, each.partition), name): each.records
        for name, rows in said
        for each in rows
    }
