"""Several controllers as processes on a real broker: one commands, the others wait and say for whom."""

import itertools
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.e2e.island import Island, obstacle
from tests.e2e.played_cluster import LIMIT_S, World
from tests.e2e.proxy import Proxy
from tests.e2e.rivals import Rival, wait_for_leader
from trimtab_controller.execution.state import Handover, HandoverPhase
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import transactional_id
from trimtab_sandbox.broker import Broker, Detour, free_ports
from trimtab_sandbox.processes import Processes

pytestmark = pytest.mark.light


def generations(world: World) -> list[int]:
    """Of all that was commanded and placed, in the order of the topic."""
    world.follow()
    epochs = [*(placement.epoch for placement in world.placements), *(command.epoch for command in world.commands)]
    return [epoch.generation for epoch in epochs]


def handover(world: World, command: Command) -> Handover:
    """What became of it, by the last word of the journal."""
    rounds = world.executions()[-1].rounds.values()
    return next(each for row in rounds for each in row.handovers if each.id == command.handover)


def check_one_wrote(world: World) -> None:
    """Placements and journal were written by one leader after the other, and no plan was begun twice."""
    world.check_epochs()
    executions = world.executions()
    epochs = [execution.epoch for execution in executions]
    assert epochs == sorted(set(epochs))
    plans = [row.plan for execution in executions for row in execution.rounds.values()]
    assert len([plan for plan, _ in itertools.groupby(plans)]) == len(set(plans))


def test_started_at_once_one_commands_and_the_other_takes_its_plan_over_when_it_is_killed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.lease_s = 6.0  # the default: what is measured here is what operators get
    rivals = [Rival(world, name) for name in ("a", "b")]
    leader, standby = wait_for_leader(*rivals)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    assert set(generations(world)) == {1}
    assert (leader.role(), standby.role()) == ("leading", "waiting")
    assert f":{leader.process.pid} (" in standby.log, "it says for whom it waits"
    shown = {row["name"].rpartition(":")[2]: row["leads"] for row in world.status()["controllers"]}
    assert shown == {str(leader.process.pid): True, str(standby.process.pid): False}

    leader.process.kill()
    killed_at = time.monotonic()
    world.wait("the command in flight, once more", lambda: world.commands.count(prepare) == 2)
    taken_over_s = time.monotonic() - killed_at
    with capsys.disabled():
        print(f"\nkill -9 of the leader: the plan in flight is commanded by the standby after {taken_over_s:.1f} s")

    world.ack(prepare, Phase.PREPARED, generation=3)
    assert world.next_command(CommandKind.RELEASE).epoch.generation == 2
    world.status_when("new term", lambda shown: bool(shown["epoch"]) and shown["epoch"][0] == 2)


def test_stopped_for_longer_than_its_lease_it_commands_no_more_and_stands_by(world: World) -> None:
    leader, standby = wait_for_leader(Rival(world, "a"), Rival(world, "b"))
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    leader.process.send_signal(signal.SIGSTOP)
    standby.wait("takeover", lambda: standby.leads)
    leader.process.send_signal(signal.SIGCONT)
    world.ack(prepare, Phase.PREPARED, generation=3)  # both hear of it
    assert world.next_command(CommandKind.RELEASE).epoch.generation == 2
    leader.wait("standing by", lambda: "standby: waiting" in leader.log.partition("no longer the leader")[2])
    leader.wait("role", lambda: leader.role() == "waiting")
    assert leader.process.poll() is None
    assert generations(world)[-1] == 2
    check_one_wrote(world)

    standby.process.terminate()  # in order: the other need not wait for a lease to run out
    assert standby.process.wait(LIMIT_S) == 0
    leader.wait("second term", lambda: leader.leads)
    assert "acting as generation 3" in leader.log
    assert "no longer the leader: asked to end" in standby.log


def test_a_successor_aborts_or_goes_on_as_the_journal_and_what_was_said_meanwhile_tell(world: World) -> None:
    """Twice the leader is killed with a hand-over in flight, and its end comes while nobody leads."""
    first = Rival(world, "a")
    first.wait("leader", lambda: first.leads)
    refused = world.next_command(CommandKind.PREPARE, windows=True)
    first.process.kill()
    world.ack(refused, Phase.REFUSED, refusal=Refusal.GUARD, detail="too little free disk")

    second = Rival(world, "b")
    abandoned = world.next_command(CommandKind.ABANDON)
    assert (abandoned.handover, abandoned.epoch.generation) == (refused.handover, 2)
    failed = handover(world, refused)
    assert failed.phase is HandoverPhase.FAILED
    assert failed.detail == f"{refused.worker} on {refused.host}: guard (too little free disk)"
    last = world.placements[-1]
    assert {last.of(each.operator, each.partition)[0] for each in refused.key_groups} == {"w0"}
    assert "goes on with plan" in second.log
    world.ack(abandoned, Phase.ABANDONED)

    taken = next(row for row in world.commands if row.kind is CommandKind.PREPARE and row.epoch.generation == 2)
    world.ack(taken, Phase.PREPARED, generation=3)
    release = world.next_command(CommandKind.RELEASE)
    second.process.kill()
    world.ack(release, Phase.RELEASED)
    world.take(taken)

    third = Rival(world, "c")
    third.wait("leader", lambda: third.leads)
    world.wait("end of the hand-over", lambda: handover(world, taken).phase is HandoverPhase.DONE)
    assert "goes on with plan" in third.log
    check_one_wrote(world)


def test_who_is_fenced_publishes_nothing_more_says_why_and_comes_back(world: World) -> None:
    one = Rival(world, "a")
    one.wait("leader", lambda: one.leads)
    world.next_command(CommandKind.PREPARE, windows=True)
    # As a leader would do that the broker has elected while this one was not listening.
    settings = {"bootstrap.servers": world.bootstrap, "transactional.id": transactional_id(world.cluster, acting=True)}
    Producer(settings).init_transactions(LIMIT_S)
    world.publish_window()
    one.wait("second term", lambda: one.leads and "acting as generation 2" in one.log)
    assert "no longer the leader: another controller has taken over" in one.log
    assert one.process.poll() is None
    world.wait("the command in flight, once more", lambda: world.commands.count(world.commands[0]) == 2)
    world.check_epochs()


@pytest.fixture
def cut_off(tmp_path: Path, unique: str) -> Iterator[tuple[World, Proxy, str]]:
    """A world, and another way to its broker that can be cut."""
    [behind] = free_ports(1)
    proxy = Proxy(behind)
    detour = Detour(proxy=proxy.port, behind=behind)
    try:
        with (
            Processes(tmp_path / "logs") as processes,
            Broker(tmp_path / "broker", processes, detours=[detour]) as broker,
        ):
            world = World(broker.address, unique, tmp_path, free_ports(1)[0])
            try:
                yield world, proxy, f"127.0.0.1:{proxy.port}"
            finally:
                world.close()
    finally:
        proxy.close()


def test_cut_off_from_the_broker_it_stands_still_and_then_by(cut_off: tuple[World, Proxy, str]) -> None:
    world, proxy, bootstrap = cut_off
    leader = Rival(world, "a", bootstrap=bootstrap)
    leader.wait("leader", lambda: leader.leads)
    standby = Rival(world, "b")
    standby.wait("standby", lambda: "standby: waiting" in standby.log)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    proxy.cut()
    standby.wait("takeover", lambda: standby.leads)
    leader.wait("standing still", lambda: "the lease expired: no commands" in leader.log)
    assert leader.role() == "suspended"
    world.ack(prepare, Phase.PREPARED, generation=3)
    assert world.next_command(CommandKind.RELEASE).epoch.generation == 2
    proxy.mend()
    leader.wait("standing by", lambda: "standby: waiting" in leader.log)
    assert "no longer the leader" in leader.log
    assert (leader.process.poll(), standby.leads) == (None, True)
    world.check_epochs()


@pytest.mark.skipif(obstacle() is not None, reason=f"no network namespace: {obstacle()}")
def test_its_cable_cut_it_stands_still_and_publishes_nothing_when_the_cable_is_mended(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """As above, but nobody answers and nothing is closed: connections and the open transaction outlive the cut."""
    world.lease_s = 6.0  # longer than the interval of its status: the cut always meets it in the middle of one
    port = int(world.bootstrap.rpartition(":")[2])
    with Island(port) as island:
        leader = Rival(world, "a", island=island)
        leader.wait("leader", lambda: leader.leads)
        standby = Rival(world, "b")
        standby.wait("standby", lambda: "standby: waiting" in standby.log)
        assert f":{leader.process.pid} (" in standby.log, "it says for whom it waits"
        prepare = world.next_command(CommandKind.PREPARE, windows=True)

        island.cut()
        cut_at = time.monotonic()
        world.wait("the command in flight, once more", lambda: world.commands.count(prepare) == 2)
        taken_over_s = time.monotonic() - cut_at
        with capsys.disabled():
            print(f"\ncable of the leader cut: its plan is commanded by the standby after {taken_over_s:.1f} s")
        leader.wait("standing still", lambda: "the lease expired: no commands" in leader.log)
        assert leader.role() == "suspended"
        assert not leader.leads
        world.ack(prepare, Phase.PREPARED, generation=3)
        release = world.next_command(CommandKind.RELEASE)
        assert release.epoch.generation == 2

        island.mend()
        leader.wait("standing by", lambda: "standby: waiting" in leader.log.partition("no longer the leader")[2])
        assert "cannot commit" in leader.log, "it was in the middle of a publication"
        leader.wait("role", lambda: leader.role() == "waiting")
        assert (leader.process.poll(), standby.leads) == (None, True)
        seen = len(world.commands)
        world.ack(release, Phase.RELEASED)
        world.take(prepare)  # both hear of it
        assert world.next_command(CommandKind.PREPARE, seen).epoch.generation == 2
        check_one_wrote(world)
        world.close()  # what runs on the island ends with it
