"""`trimtab replay` reads what a real controller has published and done."""

import json

import pytest

from tests.e2e.played_cluster import World
from trimtab_protocol.messages.commands import CommandKind

pytestmark = pytest.mark.light


def test_the_recorded_windows_are_replayed_under_other_settings(world: World) -> None:
    world.start()
    world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over_rest()
    world.wait("measured round", lambda: "measured" in world.log_text(), windows=True)

    told = json.loads(world.trimtab("replay", "--last", "1h", "--set", "balance.load_distance=90", "--json"))

    columns = {name: rows["app"] for name, rows in told["columns"].items()}
    assert list(columns) == ["as done", "as configured", "balance.load_distance=90"]
    done, configured, wide = columns.values()
    assert done["windows"] == configured["windows"] == wide["windows"] >= 3
    assert (done["plans"], done["moved"]) == (configured["plans"], configured["moved"]) == (1, 8)
    assert (wide["plans"], wide["moved"], wide["paused_s"]) == (0, 0, 0.0)
    assert wide["load_distance_mean"] > configured["load_distance_mean"]
    shown = world.trimtab("replay")
    assert "as done" in shown
    assert "load distance, mean (pp)" in shown
    assert "expected a key of balance, execution, forecast" in world.trimtab("replay", "--set", "kafka.x=1", code=2)
