"""The limits of hosts that a snapshot states by the names of its resources."""

import numpy as np

from trimtab_models.balance.hosts import HostLimits
from trimtab_models.balance.problem import UNPLACED, Floats
from trimtab_models.instances import BalanceInstance
from trimtab_models.instances.host_limits import KEPT, LOAD, of_node
from trimtab_models.solving.spared import Spared


def limits_in(instance: BalanceInstance) -> HostLimits | None:
    """The limits of hosts, with the load as first resource; None if there are none."""
    named = instance.named_hosts()
    if not named.names:
        return None
    resources = [LOAD, *sorted(named.room.keys() - {LOAD})]
    hosts = sorted(set(named.host.values()))
    places = {name: place for place, name in enumerate(hosts)}
    alone = len(hosts)  # one host without limits for all other nodes
    room = [[named.room.get(resource, {}).get(host, np.inf) for host in hosts] + [np.inf] for resource in resources]
    usage = [
        [each.load if resource == LOAD else each.usage.get(resource, 0.0) for each in instance.key_groups]
        for resource in resources
    ]
    node_at = {node.id: place for place, node in enumerate(instance.nodes)}
    home = [UNPLACED if each.node is None else node_at[each.node] for each in instance.key_groups]
    table = np.array(usage, np.float64).reshape(len(resources), len(home))
    return HostLimits(
        host=np.array([places.get(named.host.get(place, ""), alone) for place in range(len(instance.nodes))], np.int64),
        usage=table,
        room=np.array(room, np.float64),
        home=np.array(home, np.int64),
        stays=tuple(row for row, resource in enumerate(resources) if resource.startswith(KEPT)),
        spared=_spared(instance, resources, table, node_at),
    )


def _spared(
    instance: BalanceInstance,
    resources: list[str],
    usage: Floats,
    node_at: dict[str, int],
) -> Spared | None:
    """What key groups use less on single nodes."""
    names = {of_node(node, each): (place, row) for node, place in node_at.items() for row, each in enumerate(resources)}
    pairs: list[tuple[int, int]] = []
    amounts: list[tuple[int, float]] = []
    for at, key_group in enumerate(instance.key_groups):
        for name, used in key_group.usage.items():
            if name in names:
                node, row = names[name]
                pairs.append((at, node))
                amounts.append((row, max(0.0, usage[row, at] - used)))
    amount = np.zeros((len(resources), len(pairs)))
    for column, (row, less) in enumerate(amounts):
        amount[row, column] = less
    places = np.array(pairs, np.int64).reshape(len(pairs), 2)
    return Spared.of(places[:, 0], places[:, 1], amount, (len(instance.key_groups), len(node_at)))
