"""A worker gives all to another one of its host, and then the host is lost: the other host has taken over warm."""

from tests.e2e.steering.app_names import note_fault
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.executed import LISTED, Executed
from tests.e2e.steering.scenarios import begin
from tests.e2e.steering.standbys import owned_by, restored, warm
from trimtab_protocol.messages.names import HostId

SOURCE, TARGET, FAR = map(worker, range(3))
HOSTS = {SOURCE: HostId("near"), TARGET: HostId("near"), FAR: HostId("far")}


async def lose_host(cluster: Cluster) -> None:
    """kill -9 of both workers of a host right after moves between them; they start again at the end."""
    await begin(cluster)
    for each in cluster.key_groups:
        owner = cluster.row(each)[0]
        cluster.place([each], (owner, FAR if owner != FAR else TARGET))
    await cluster.publish()
    await warm(cluster)
    moved = owned_by(cluster, SOURCE)
    _, ended_s = await Executed(cluster, LISTED, hosts=HOSTS).carry_out(dict.fromkeys(moved, TARGET))
    assert {cluster.row(each) for each in moved} == {(TARGET, FAR)}, "the source makes way for the distant standby"
    await warm(cluster)
    print(f"{len(moved)} key groups moved within a host in {ended_s:.1f} s; the source has closed its copies")

    noted = len(restored(cluster, FAR))
    for name in (SOURCE, TARGET):
        note_fault(cluster.folder)
        cluster.alive.pop(name).kill()
    await cluster.settled()
    assert cluster.owners() == {each: [FAR] for each in cluster.key_groups}
    most = max(row["records"] for row in restored(cluster, FAR)[noted:])
    print(f"after the loss of the host {FAR} restored {most} records at most")
    assert most <= cluster.setup.rate
    for name in (SOURCE, TARGET):
        cluster.start(name)
    await cluster.settled(150.0)
