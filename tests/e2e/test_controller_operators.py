"""What operators ask of the controller's process, on a real broker; workers and agents are played by the test."""

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.e2e.played_cluster import APP, LIMIT_S, OPERATOR, World, key_group, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState

pytestmark = pytest.mark.light


def test_pause_drain_stop_and_what_the_operator_is_told(world: World) -> None:
    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    world.start()
    wait_until_it_acts(world)
    world.wait("decision", lambda: "inside the band" in world.log_text(), windows=True)
    assert "no worker or host 'w9' reports; there are w0, w1, w2" in world.trimtab("drain", "w9", code=1)
    world.trimtab("pause", "--reason", "tea")
    drain = world.trimtab("drain", "w2", "--reason", "kernel update")  # the status need not tell of the pause yet
    assert "but the controller is paused: the drain starts after `trimtab resume`" in drain
    world.wait("pause", lambda: ": tea" in world.log_text(), windows=True)
    world.publish_window()
    assert "drain w2" in world.trimtab("plan"), "what it would do, were it not paused"
    assert [command.kind for command in world.commands] == []
    assert "nothing to do" in world.trimtab("undrain", "w1")
    assert "trimtab runbook paused" in world.trimtab("status")
    world.trimtab("resume")
    assert "trimtab runbook paused" not in world.trimtab("status"), "although no window has come since"
    world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over_rest()
    stop = world.next_command(CommandKind.STOP, windows=True)
    assert (stop.worker, list(world.owners.values()).count("w2")) == ("w2", 0)
    world.workers.remove("w2")
    world.stopped.append("w2")  # its agent still reports
    world.ack(stop, Phase.STOPPED, exit_code=0)
    world.wait("calm", lambda: world.log_text().rstrip().endswith("inside the band of 5.0 pp"), windows=True)
    start_after = len(world.commands)
    shown = world.trimtab("status")
    assert "drain w2" in shown
    instance = json.loads(world.trimtab("snapshot"))
    assert [node["id"] for node in instance["nodes"]] == ["w0", "w1"]
    world.trimtab("undrain", "w2")
    assert world.next_command(CommandKind.START, start_after, windows=True).worker == "w2"
    check_events(world)


def check_events(world: World) -> None:
    """What the drain of w2 has left in the events, and what `trimtab why` makes of it."""
    told = [json.loads(line) for line in world.trimtab("events", "--json").splitlines()]
    names = [f"{row['kind']} {row['phase']}" for row in told]
    assert len({row["id"] for row in told}) == len(told)
    assert {"leader begun", "decision skip", "decision adopt", "plan begun", "plan ended", "scaling begun"} <= set(
        names
    )
    skips = [row["reason"] for row in told if row["kind"] == "decision" and row["phase"] == "skip"]
    assert not [one for one, two in pairwise(skips) if one == two == "inside_band"], "a repeated decision is told once"
    given = [(row["by"], row["text"]) for row in told if row["kind"] == "intent" and row["phase"] == "given"]
    assert [text.partition(", by ")[0] + ": " + text.rpartition(": ")[2] for _, text in given] == [
        "pause: tea",
        "drain w2: kernel update",
    ]
    assert all(by and by in text for by, text in given)
    ends = [row for row in told if row["kind"] == "intent" and row["phase"] == "ended"]
    assert [row["text"].partition(" by ")[0] for row in ends] == [
        "the request to pause is taken back",
        "the request to drain w2 is taken back",
    ]
    assert all(row["by"] in row["text"] for row in ends)
    begun = next(row for row in told if row["kind"] == "plan" and row["phase"] == "begun")
    ended = next(row for row in told if row["kind"] == "plan" and row["phase"] == "ended")
    assert begun["plan"] == ended["plan"]
    assert begun["reason"] == "drain"
    assert {(move["source"], move["why"]) for move in begun["moves"]} == {("w2", "drain")}
    assert {row["worker"] for row in begun["loads"]} == {"w0", "w1", "w2"}
    moved = {move["key_group"]: move["target"] for move in ended["moves"] if move["outcome"] == "done"}
    assert len(moved) == 4
    assert "intent given" in world.trimtab("events", "--kind", "intent", "--since", "1h")

    name, target = next(iter(moved.items()))
    world.publish_window()
    why = json.loads(world.trimtab("why", name, "--json"))
    assert (why["owner"], why["plan"], why["moves"][0]["outcome"]) == (target, begun["plan"], "done")
    assert why["story"] == f"plan {begun['plan']} moved it here from w2: w2 was being drained"
    assert f"{name} is on {target} since " in world.trimtab("why", name)
    assert "found no key group 99" in world.trimtab("why", f"{APP}/{OPERATOR}/99", code=1)


def test_the_pool_and_workers_that_were_given_up_are_shown(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    first, *others = world.snapshot().nodes
    away = replace(first, app=None, state=WorkerState.AWAY, cpu=None, steering=False, operators=None, declared=APP)
    said = "crashed 10 times in a row, the agent no longer starts it; last: exit code 1"
    idle = replace(away, worker=WorkerId("w5"), absence=Absence.STOPPED)
    down = replace(away, worker=WorkerId("w7"), absence=Absence.CRASHED, reason=said)
    world.publish_window(nodes=(first, *others, idle, down))

    shown = world.status_when("pool", lambda status: status["pool"] != [])
    assert shown["pool"] == [{"app": APP, "worker": "w5", "host": "h0", "capacity": 0.5}]
    assert [(row["kind"], row["text"]) for row in shown["concerns"]] == [("worker_crashes", f"w7 on h0 {said}")]
    text = world.trimtab("status")
    assert "1 worker can be started: w5 on h0" in text
    assert "trimtab runbook worker_crashes" in text
    assert world.metric(f'trimtab_controller_pool_workers{{app="{APP}"}}') == 1
    assert world.metric(f'trimtab_controller_concern{{app="{APP}",kind="worker_crashes"}}') == 1
    world.publish_window()
    world.status_when("no pool", lambda status: status["pool"] == [] and status["concerns"] == [])


def test_an_app_and_a_worker_that_are_gone_for_good_are_forgotten_for_successors_too(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    world.wait("first placement", lambda: bool(world.placements), windows=True)
    world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over_rest()
    assert "app app still runs: w0 on h0" in world.trimtab("forget", "app", code=1)
    assert "either APP, or --worker NAME" in world.trimtab("forget", code=2)

    nodes = tuple(replace(row, app=AppId("other"), operators=None) for row in world.snapshot().nodes)
    world.status_when("window", lambda shown: shown["window_end"] is not None)
    world.publish_window(nodes=nodes, key_groups=())
    world.status_when("other app", lambda shown: {row["app"] for row in shown["nodes"]} == {"other"})
    world.trimtab("forget", "app", "--reason", "replaced by other")
    deadline = time.monotonic() + LIMIT_S
    while "forget app app: its placement of 12 key groups is revoked" not in world.log_text():
        assert time.monotonic() < deadline, world.log_text()
        world.publish_window(nodes=nodes, key_groups=())
    world.wait("the empty placement", lambda: world.placements[-1].is_taken_back)
    shown = world.status_when("answer", lambda status: "forget" in [row["kind"] for row in status["decisions"]])
    assert [row["text"].partition(", asked")[0] for row in shown["decisions"] if row["kind"] == "forget"] == [
        "forget app app: its placement of 12 key groups is revoked"
    ]

    world.running[-1].kill()
    world.start()
    world.wait("restart", lambda: world.log_text().count("acting as generation") == 2)
    world.publish_window(nodes=nodes, key_groups=())
    shown = world.status_when("its apps", lambda status: status["apps"] != [] and status["epoch"][0] == 2)
    assert [row["app"] for row in shown["apps"]] == ["other"]
    world.trimtab("forget", "--worker", "w9")
    deadline = time.monotonic() + LIMIT_S
    while "forget worker w9: it is no longer awaited" not in world.log_text():
        assert time.monotonic() < deadline, world.log_text()
        world.publish_window(nodes=nodes, key_groups=())
    world.wait("the app is back", lambda: not world.placements[-1].is_taken_back, windows=True)
    world.check_placements()


def test_a_stop_ends_the_plan_in_flight_and_a_pause_keeps_new_ones_away(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    first = world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over(first)
    second = world.next_command(CommandKind.PREPARE, world.commands.index(first) + 1)
    assert "no app 'nobody' reports; there is app" in world.trimtab("stop", "nobody", code=1)

    said = world.trimtab("stop", "app", "--pause", "--reason", "lag grows")

    asked_at = time.monotonic()
    abandon = world.next_command(CommandKind.ABANDON)
    stopped = world.status_when("end of the plan", lambda status: status["rounds"][-1]["ended_at"] is not None)
    took_s = time.monotonic() - asked_at
    print(f"{took_s:.1f} s from `trimtab stop` to the end of the plan in the status")
    assert took_s < 5.0 + LIMIT_S / 10, "5 s on a quiet machine"
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


def test_a_dry_run_says_what_it_would_do_and_does_nothing(world: World) -> None:
    world.start(act=False)
    wait_until_it_acts(world, "dry run")
    world.wait("plan", lambda: "dry run, would do" in world.log_text(), windows=True)
    world.follow()
    assert (world.commands, world.placements) == ([], [])
    world.wait("status", lambda: "dry run, would do" in world.trimtab("status", "--json"))
    assert world.status()["acting"] is False
