"""The controller as a process on a real broker, and what operators ask of it; agents are played by the test."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.played_cluster import APP, LIMIT_S, OPERATOR, World, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind
from trimtab_sandbox.broker import Broker, free_ports

pytestmark = pytest.mark.light


def test_a_stop_ends_the_plan_in_flight_and_a_pause_keeps_new_ones_away(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    first = world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over(first)
    second = world.next_command(CommandKind.PREPARE, world.commands.index(first) + 1)
    assert "no app 'nobody' reports; there is app" in world.trimtab("stop", "nobody", code=1)

    said = world.trimtab("stop", "app", "--pause", "--reason", "lag grows")

    abandon = world.next_command(CommandKind.ABANDON)
    stopped = world.status_when("end of the plan", lambda status: status["rounds"][-1]["ended_at"] is not None)
    assert said.startswith(f"stopping plan {stopped['rounds'][-1]['plan']}: ")
    assert (abandon.handover, abandon.worker) == (second.handover, second.target)
    [row] = stopped["rounds"]
    assert row["migrations"] == len(first.key_groups)
    assert row["failed"] == 8 - row["migrations"]
    assert row["stopped"].endswith(": lag grows")
    assert stopped["paused"] is not None
    for _ in range(3):
        world.publish_window()
    assert [command.kind for command in world.commands[world.commands.index(abandon) + 1 :]] == []
    world.check_placements()
    world.trimtab("resume")
    world.hand_over(world.next_command(CommandKind.PREPARE, world.commands.index(abandon) + 1, windows=True))
    assert sorted(list(world.owners.values()).count(worker) for worker in world.workers) == [4, 4, 4]
    world.wait("its end", lambda: world.log_text().count(" ended after ") == 2)
    check_told(world, str(first.key_groups[0]), row["plan"], str(first.target))


def check_told(world: World, moved: str, plan: str, target: str) -> None:
    """What a stopped plan has left in the events, and what `trimtab why` makes of it."""
    told = [json.loads(line) for line in world.trimtab("events", "--json").splitlines()]
    names = {f"{each['kind']} {each['phase']}" for each in told}
    assert {"leader begun", "decision adopt", "plan begun", "plan ended", "intent given", "intent ended"} <= names
    assert len({each["id"] for each in told}) == len(told)
    ended = next(each for each in told if each["kind"] == "plan" and each["phase"] == "ended" and each["plan"] == plan)
    outcomes = {move["key_group"]: move["outcome"] for move in ended["moves"]}
    assert (outcomes[moved], set(outcomes.values())) == ("done", {"done", "failed"})
    assert ": lag grows" in world.trimtab("events", "--kind", "intent", "--since", "1h")
    world.publish_window()
    why = json.loads(world.trimtab("why", moved, "--json"))
    assert (why["owner"], why["plan"], why["moves"][0]["outcome"]) == (target, plan, "done")
    assert f"{moved} is on {target} since " in world.trimtab("why", moved)
    assert "found no key group 99" in world.trimtab("why", f"{APP}/{OPERATOR}/99", code=1)


def test_a_dry_run_says_what_it_would_do_and_does_nothing(world: World) -> None:
    world.start(act=False)
    wait_until_it_acts(world, "dry run")
    world.wait("plan", lambda: "dry run, would do" in world.log_text(), windows=True)
    world.follow()
    assert (world.commands, world.placements) == ([], [])
    world.wait("status", lambda: "dry run, would do" in world.trimtab("status", "--json"))
    assert world.status()["acting"] is False


def test_the_broker_may_be_away_at_the_start(private_broker: Callable[[], Broker], unique: str, tmp_path: Path) -> None:
    broker = private_broker()
    world = World(broker.address, unique, tmp_path, free_ports(1)[0])
    try:
        broker.stop()
        process = world.start()
        wait_until_it_acts(world, "does not answer")
        broker.start()
        world.next_command(CommandKind.PREPARE, windows=True)
        assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        world.close()
