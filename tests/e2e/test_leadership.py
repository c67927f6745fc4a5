"""Several controllers as processes on a real broker: one commands, the others wait and say for whom."""

import itertools
import signal
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from tests.e2e.played_cluster import LIMIT_S, World
from tests.e2e.rivals import Rival, wait_for_leader
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import Epoch, transactional_id

pytestmark = pytest.mark.light


def generations(world: World) -> list[int]:
    """Of all that was commanded and placed, in the order of the topic."""
    world.follow()
    epochs = [*(placement.epoch for placement in world.placements), *(command.epoch for command in world.commands)]
    return [epoch.generation for epoch in epochs]


def check_one_wrote(world: World) -> None:
    """Placements and journal were written by one leader after the other, and no plan was begun twice."""
    world.check_epochs()
    executions = world.executions()
    epochs = [execution.epoch for execution in executions]
    assert epochs == sorted(set(epochs))
    plans = [row.plan for execution in executions for row in execution.rounds.values()]
    assert len([plan for plan, _ in itertools.groupby(plans)]) == len(set(plans))


def test_stopped_for_longer_than_its_lease_it_commands_no_more_and_stands_by(world: World) -> None:
    leader, standby = wait_for_leader(Rival(world, "a"), Rival(world, "b"))
    shown = {row["name"].rpartition(":")[2]: row["leads"] for row in world.status()["controllers"]}
    assert shown == {str(leader.process.pid): True, str(standby.process.pid): False}
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


def test_it_leads_above_a_leader_whom_only_workers_know(world: World) -> None:
    """As after all topics were deleted: agents and workers go on refusing what is older."""
    one = Rival(world, "a")
    one.wait("leader", lambda: one.leads)
    nodes = [replace(each, epoch=Epoch(7, 3)) for each in world.snapshot().nodes]
    world.publish_window(nodes=(replace(nodes[0], epoch=Epoch(10**12, 1)), *nodes[1:]))
    assert world.next_command(CommandKind.PREPARE, windows=True).epoch.generation == 8
    assert generations(world)[-1] == 8
    assert "workers know generation 7, of which there is no record: acting as generation 8" in one.log
    world.check_epochs()


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
