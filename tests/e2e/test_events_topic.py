"""The topic of events goes away under a controller that acts: that costs events, and nothing else."""

from confluent_kafka.admin import AdminClient

from tests.e2e.played_cluster import LIMIT_S, World, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind


def test_a_deleted_events_topic_keeps_nothing_back(world: World) -> None:
    """The broker refuses to end a transaction that has lost its topic, and ends the producer: a new one goes on."""
    world.start()
    wait_until_it_acts(world)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.delete_topics([world.topics.events])[world.topics.events].result(LIMIT_S)
    world.hand_over(world.next_command(CommandKind.PREPARE, windows=True))
    world.hand_over_rest()
    world.wait("end of the plan", world.round_ended, windows=True)
    assert [each.poll() for each in world.running] == [None], "the controller is still the same process"
    world.check_epochs()
    world.check_placements()
    world.wait(
        "its end among the events", lambda: "ended" in world.trimtab("events", "--since", "1h", "--kind", "plan")
    )
