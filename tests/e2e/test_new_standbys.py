"""New standbys by a real controller on a real broker: named as their hosts have room for the restores."""

import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from tests.e2e.played_cluster import World, host_of, key_group, wait_until_it_acts
from trimtab_controller.execution.restore_costs import BYTES_PER_S, UNIT_S
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import Snapshot

KEY_GROUPS, EACH = 24, 8
TOGETHER = 4
"""`key_groups_per_handover` of the played cluster."""
STATE_BYTES = 10_000_000
RESTORE_S = UNIT_S + TOGETHER * STATE_BYTES / BYTES_PER_S
"""What four key groups take alone, before anything is measured."""


def one_core(world: World) -> None:
    """Hosts with one core each restore one batch at a time."""
    plain = world.snapshot

    def snapshot() -> Snapshot:
        found = plain()
        return replace(found, hosts=tuple(replace(row, cores=1.0, cpu=0.3) for row in found.hosts))

    world.snapshot = snapshot  # type: ignore[method-assign]


def followed(placement: Placement) -> Counter[str]:
    """Key groups with a standby on each host."""
    rows = (row for rows in placement.owners.values() for row in rows)
    return Counter(host_of(worker) for row in rows for worker in row[1:])


def test_standbys_are_named_one_batch_at_a_time_on_hosts_of_one_core(world: World) -> None:
    world.owners = {key_group(p): f"w{p % 3}" for p in range(KEY_GROUPS)}
    world.standbys, world.state_bytes = 1, STATE_BYTES
    one_core(world)
    world.start()
    wait_until_it_acts(world)
    seen: dict[int, tuple[float, Counter[str]]] = {}

    def complete() -> bool:
        for number, placement in enumerate(world.placements):
            seen.setdefault(number, (time.monotonic(), followed(placement)))
        return bool(seen) and sum(seen[len(seen) - 1][1].values()) == KEY_GROUPS

    world.wait("standbys of all", complete, windows=True)
    steps = [(at, counts) for at, counts in seen.values() if counts]
    begun = steps[0][0]
    print([(f"{at - begun:.1f} s", dict(counts)) for at, counts in steps], f"; a batch takes {RESTORE_S:.1f} s")
    for host in ("h0", "h1", "h2"):
        grown = [counts[host] for _, counts in steps]
        assert all(more - few <= TOGETHER for few, more in pairwise([0, *grown])), "one batch at a time"
        assert grown[-1] == EACH
    assert steps[-1][0] - begun > 0.8 * RESTORE_S, "the second batch waits for the first one"
    world.status_when("none is missing", lambda shown: [row["missing_standbys"] for row in shown["apps"]] == [0])
