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

    sized = "scaling.mode=act,scaling.min_utilisation=0.0,scaling.max_utilisation=1.0"
    settings = ("--set", "balance.load_distance=90", "--set", sized)
    told = json.loads(world.trimtab("replay", "--last", "1h", *settings, "--json"))

    columns = {name: rows["app"] for name, rows in told["columns"].items()}
    assert list(columns) == ["as done", "as configured", "balance.load_distance=90", sized]
    done, configured, wide, own_size = columns.values()
    assert done["windows"] == configured["windows"] == wide["windows"] >= 3
    assert (done["plans"], done["moved"]) == (configured["plans"], configured["moved"]) == (1, 8)
    assert (wide["plans"], wide["moved"], wide["paused_s"]) == (0, 0, 0.0)
    assert wide["load_distance_mean"] > configured["load_distance_mean"]
    assert {(row["workers_mean"], row["resized"]) for row in columns.values()} == {(own_size["workers_most"], 0)}
    assert own_size["moved"] == configured["moved"]
    shown = world.trimtab("replay")
    assert "as done" in shown
    assert "load distance, mean (pp)" in shown
    refused = world.trimtab("replay", "--set", "kafka.x=1", code=2)
    assert "expected a key of balance, execution, scaling" in refused
