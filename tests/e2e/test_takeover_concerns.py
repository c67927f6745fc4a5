"""A concern that needs several windows is told once, also if another controller takes over meanwhile."""

import time
from dataclasses import replace

from tests.e2e.played_cluster import World, key_group, wait_until_it_acts
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_protocol.messages.snapshot import Snapshot


class Overloaded:
    """w0 uses more than its capacity while `on`."""

    def __init__(self, world: World) -> None:
        self.on = True
        self._plain = world.snapshot
        world.snapshot = self.snapshot  # type: ignore[method-assign]

    def snapshot(self) -> Snapshot:
        plain = self._plain()
        rows = (replace(row, cpu=0.6) if row.worker == "w0" and self.on else row for row in plain.nodes)
        return replace(plain, nodes=tuple(rows))


def in_force(status: dict) -> list[str]:
    return [row["kind"] for row in status["concerns"]]


def windows(world: World, count: int) -> None:
    """So many windows in a row."""
    for _ in range(count):
        world.publish_window()


def test_a_takeover_neither_ends_a_concern_nor_begins_it_again(world: World) -> None:
    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    load = Overloaded(world)
    first = world.start()
    wait_until_it_acts(world)
    expected = [ConcernKind.OVER_CAPACITY]
    windows(world, 6)
    world.status_when("the concern", lambda status: in_force(status) == expected)
    acting = world.log_text().count("acting as generation")
    first.kill()
    first.wait()
    world.start()
    world.wait("takeover", lambda: world.log_text().count("acting as generation") > acting)
    windows(world, 1)  # a single one shows nothing yet
    time.sleep(1.0)
    assert in_force(world.status()) == expected
    windows(world, 6)
    world.status_when("its own concern", lambda status: in_force(status) == expected)
    assert world.metric(f'trimtab_controller_concern{{app="app",kind="{expected[0]}"}}') == 1.0
    told = world.trimtab("events", "--kind", "concern")
    assert (told.count("has ended"), told.count("of its capacity")) == (0, 1), told

    load.on = False
    windows(world, 6)
    world.status_when("its end", lambda status: in_force(status) == [])
    assert "over_capacity of app has ended" in world.trimtab("events", "--kind", "concern")
