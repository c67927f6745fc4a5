"""`[balance] method = "albic"` as a process on a real broker: what talks to each other comes together, and stays so."""

import json

import pytest

from tests.e2e.played_cluster import World, key_group, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.snapshot import PairWindow

pytestmark = pytest.mark.light


def remote(world: World) -> int:
    return sum(world.owners[pair.source] != world.owners[pair.target] for pair in world.pairs)


def play(world: World, balance: str, *, tuples_s: float) -> None:
    """Every worker has four key groups: there is nothing to balance, but each talks to one on the next worker."""
    world.config.write_text(world.config.read_text().replace("[balance]\n", f"[balance]\n{balance}\n"))
    for number in range(6):
        world.owners[key_group(number)] = f"w{number % 3}"
        world.owners[key_group(number + 6)] = f"w{(number + 1) % 3}"
    world.pairs = tuple(
        PairWindow(source=key_group(number), target=key_group(number + 6), tuples_s=tuples_s, bytes_s=10.0 * tuples_s)
        for number in range(6)
    )
    world.start()


def test_pairs_come_together_inside_the_band_for_a_measured_saving(world: World) -> None:
    play(world, 'method = "albic"\nremote_tuple_cpu_s = 0.0002', tuples_s=100.0)
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
    assert "6 moves, load distance 0.0 -> 0.0 (bound 0.0), collocation 0.0% -> 100.0%, saving 8.0 pp" in plan["text"]
    assert world.metric("trimtab_controller_collocation_ratio") == 1.0
    assert json.loads(world.trimtab("plan", "--json"))["reason"] == "inside_band"
    assert "collocation 100%" in world.trimtab("status")


def test_no_gigabyte_moves_for_a_tuple_a_second_whose_saving_nobody_measured(world: World) -> None:
    world.state_bytes = 10**9
    play(world, 'method = "albic"', tuples_s=1.0)
    wait_until_it_acts(world)
    calm = 'trimtab_controller_decisions_total{kind="skip",reason="inside_band"}'
    world.wait("rest in several windows", lambda: world.metric(calm) >= 3, windows=True)

    status = world.status_when("calm", lambda status: status["decisions"][-1]["reason"] == "inside_band")
    note = "collocation: not used, no significant saving is measured"
    assert status["decisions"][-1]["text"].count(note) == 1
    assert status["apps"][0]["collocation"] == 0.0
    assert (status["rounds"], world.commands, remote(world)) == ([], [], 6)
    assert note in " ".join(world.trimtab("plan").split())
