"""`trimtab rolling-restart`, by a real controller that is killed meanwhile; workers and agents are played."""

from dataclasses import replace

import pytest

from tests.e2e.played_cluster import APP, World, key_group, wait_until_it_acts
from tests.e2e.test_scale_command import drained, restart
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

pytestmark = pytest.mark.light


class Kept:
    """Workers that agents keep for the app: those in `stopped` do not run; `differ` = how the others differ."""

    def __init__(self, world: World) -> None:
        self._plain = world.snapshot
        self.stopped: set[str] = set()
        self.differ: str | None = None
        world.snapshot = self.snapshot  # type: ignore[method-assign]

    def snapshot(self) -> Snapshot:
        plain = self._plain()
        return replace(plain, nodes=tuple(map(self._kept, plain.nodes)))

    def _kept(self, row: NodeWindow) -> NodeWindow:
        if row.worker not in self.stopped:
            return replace(row, declared=APP, steering=self.differ is None, reason=self.differ)
        away = replace(row, declared=APP, app=None, state=WorkerState.AWAY, cpu=None, steering=False)
        return replace(away, operators=None, absence=Absence.STOPPED)


def turn_of(world: World, host: str) -> dict:
    """What the status tells of the restart as soon as this host has its turn."""

    def told(status: dict) -> dict:
        return status["apps"][0]["restart"] or {}

    return told(world.status_when(f"the turn of {host}", lambda status: told(status).get("host") == host))


def test_every_host_has_its_turn_also_under_a_successor(world: World) -> None:
    world.workers = ["w0", "w1"]
    world.owners = {key_group(p): f"w{p % 2}" for p in range(8)}
    kept = Kept(world)
    world.start()
    wait_until_it_acts(world)
    world.wait("placement", lambda: bool(world.placements), windows=True)
    assert "no app 'shop' reports" in world.trimtab("rolling-restart", "shop", code=1)
    assert "2 workers of app on 2 hosts will be restarted" in world.trimtab("rolling-restart", APP, "--reason", "new")

    for turn, worker in enumerate(("w0", "w1")):
        begun = len(world.commands)
        stop = drained(world, begun)
        assert (stop.worker, worker in world.owners.values()) == (worker, False)
        told = turn_of(world, f"h{turn}")  # it may wait for a moment: the newest window began before the drain ended
        assert told | {"waits": None} == {
            "workers": 2, "done": turn, "host": f"h{turn}", "skipped": [], "differ": None, "waits": None
        }  # fmt: skip
        assert {each.worker for each in world.commands[begun:] if each.kind is CommandKind.STOP} == {worker}
        if turn == 0:
            assert "is being restarted already" in world.trimtab("rolling-restart", APP, code=1)
        world.ack(stop, Phase.STOPPED, exit_code=0)
        kept.stopped.add(worker)
        start = world.next_command(CommandKind.START, begun, windows=True)
        if turn == 1:
            restart(world)
        assert start.worker == worker
        world.ack(start, Phase.STARTED)
        kept.stopped.remove(worker)

    world.wait("its end", lambda: "restarted 2 of 2 workers" in world.log_text(), windows=True)
    world.status_when("none", lambda status: status["apps"][0]["restart"] is None)
    assert "is not being restarted" in world.trimtab("rolling-restart", APP, "--cancel")
    world.hand_over_rest()
    events = world.trimtab("events", "--since", "1h")
    assert "restart 2 workers of app, host by host" in events
    assert "restarted 2 of 2 workers" in events


def test_a_version_with_other_tables_is_restarted_without_a_drain(world: World) -> None:
    world.workers = ["w0", "w1"]
    world.owners = {key_group(p): f"w{p % 2}" for p in range(8)}
    kept = Kept(world)
    world.start()
    wait_until_it_acts(world)
    world.wait("placement", lambda: bool(world.placements), windows=True)
    world.trimtab("rolling-restart", APP, "--reason", "new")
    stop = drained(world, 0)
    assert (stop.worker, stop.owning) == ("w0", False)
    world.ack(stop, Phase.STOPPED, exit_code=0)
    kept.stopped.add("w0")
    begun = len(world.commands)
    world.ack(world.next_command(CommandKind.START, windows=True), Phase.STARTED)
    kept.stopped.remove("w0")
    kept.differ = f"{WORKERS_DIFFER}: w0 against w1"

    stop = world.next_command(CommandKind.STOP, begun, windows=True)
    assert (stop.worker, stop.owning, set(world.owners.values())) == ("w1", True, {"w1"})
    told = turn_of(world, "h1")
    assert (told["done"], told["differ"]) == (1, kept.differ)
    begun = len(world.commands)
    world.ack(stop, Phase.STOPPED, exit_code=0)
    kept.stopped.add("w1")
    start = world.next_command(CommandKind.START, begun)
    assert start.worker == "w1", "it is started at once, and not by the next window"
    world.ack(start, Phase.STARTED)
    kept.stopped.remove("w1")
    kept.differ = None
    world.wait("its end", lambda: "restarted 2 of 2 workers" in world.log_text(), windows=True)
    assert all(row[0] == "w1" for rows in world.placements[-1].owners.values() for row in rows), "nothing moved"
    events = world.trimtab("events", "--since", "1h")
    assert "to restart it without a drain, since nothing may move: workers differ" in events
