"""`[balance] method = "albic"` as a process on a real broker: what talks to each other comes together, and stays so."""

import json

import pytest
from played_cluster import World, key_group, wait_until_it_acts

from trimtab_models.messages.commands import CommandKind
from trimtab_models.messages.snapshot import PairWindow


def remote(world: World) -> int:
    return sum(world.owners[pair.source] != world.owners[pair.target] for pair in world.pairs)


def test_pairs_come_together_inside_the_band(world: World) -> None:
    """Every worker has four key groups: there is nothing to balance, but each talks to one on the next worker."""
    world.config.write_text(world.config.read_text().replace("[balance]\n", '[balance]\nmethod = "albic"\n'))
    for number in range(6):
        world.owners[key_group(number)] = f"w{number % 3}"
        world.owners[key_group(number + 6)] = f"w{(number + 1) % 3}"
    world.pairs = tuple(
        PairWindow(source=key_group(number), target=key_group(number + 6), tuples_s=100.0, bytes_s=1000.0)
        for number in range(6)
    )
    world.start()
    wait_until_it_acts(world)
    world.hand_over(world.next_command(CommandKind.PREPARE, windows=True))
    world.hand_over_rest()

    world.wait("measured round", lambda: "measured" in world.log_text(), windows=True)
    assert remote(world) == 0
    assert sorted(list(world.owners.values()).count(worker) for worker in world.workers) == [4, 4, 4]
    world.check_placements()
    status = world.status_when("collocated", lambda status: status["apps"][0]["collocation"] == 1.0)
    [row] = status["rounds"]
    assert (row["migrations"], row["failed"], row["reason"]) == (6, 0, "collocation 0%")
    assert (row["before"], row["planned"], row["after"]) == tuple(pytest.approx(0.0) for _ in range(3))
    [plan] = [each for each in status["decisions"] if each["kind"] == "plan"]
    assert plan["reason"] == "collocation"
    assert "6 moves, load distance 0.0 -> 0.0 (bound 0.0), collocation 0.0% -> 100.0%" in plan["text"]
    assert world.metric("trimtab_controller_collocation_ratio") == 1.0
    assert json.loads(world.trimtab("plan", "--json"))["reason"] == "inside_band"
    assert "collocation 100%" in world.trimtab("status")
