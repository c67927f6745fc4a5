"""`trimtab maintenance`, by a real controller that is restarted meanwhile; workers and agents are played."""

from dataclasses import replace

import pytest

from tests.e2e.played_cluster import APP, World, key_group, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

pytestmark = pytest.mark.light


class Kept:
    """Workers that agents keep for the app: those in `stopped` do not run."""

    def __init__(self, world: World) -> None:
        self._plain = world.snapshot
        self.stopped: set[str] = set()
        world.snapshot = self.snapshot  # type: ignore[method-assign]

    def snapshot(self) -> Snapshot:
        plain = self._plain()
        return replace(plain, nodes=tuple(map(self._kept, plain.nodes)))

    def _kept(self, row: NodeWindow) -> NodeWindow:
        if row.worker not in self.stopped:
            return replace(row, declared=APP, steering=True)
        away = replace(row, declared=APP, app=None, state=WorkerState.AWAY, cpu=None, steering=False)
        return replace(away, operators=None, absence=Absence.STOPPED)


def test_the_workers_of_a_host_stay_off_also_under_a_successor_and_are_started_at_its_end(world: World) -> None:
    world.workers = ["w0", "w1"]
    world.owners = {key_group(p): f"w{p % 2}" for p in range(8)}
    kept = Kept(world)
    world.start()
    wait_until_it_acts(world)
    world.wait("placement", lambda: bool(world.placements), windows=True)
    assert "no host 'nowhere' reports" in world.trimtab("maintenance", "nowhere", "--for", "1h", code=1)
    begun = len(world.commands)
    said = world.trimtab("maintenance", "h1", "--for", "1h", "--reason", "memory")
    assert "maintenance of h1 for 60 min: 1 worker will be drained" in said

    stop = world.drained(begun)
    assert (stop.worker, "w1" in world.owners.values()) == ("w1", False)
    world.ack(stop, Phase.STOPPED, exit_code=0)
    kept.stopped.add("w1")
    world.restart()
    stopped = len(world.commands)
    world.status_when("w1 off", lambda status: any(row["draining"] for row in status["nodes"] if row["worker"] == "w1"))
    assert [each.kind for each in world.commands[stopped:] if each.kind is CommandKind.START] == []

    world.trimtab("maintenance", "h1", "--for", "1s", "--reason", "sooner")
    start = world.next_command(CommandKind.START, stopped, windows=True)
    assert (start.worker, start.host) == ("w1", "h1")
    world.ack(start, Phase.STARTED)
    kept.stopped.remove("w1")
    world.wait("its end", lambda: "the maintenance of h1 is over: w1 may run again" in world.log_text(), windows=True)
    assert "nothing to do" in world.trimtab("maintenance", "h1", "--end")
    world.hand_over_rest()
    events = world.trimtab("events", "--since", "1h")
    assert "drain w1 for maintenance of 60 min, by" in events
    assert APP in events
