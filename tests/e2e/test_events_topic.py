"""The topic of events goes away under a controller that acts: that costs events, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from confluent_kafka.admin import AdminClient

from tests.e2e.played_cluster import LIMIT_S, World, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind


@contextmanager
def started_again(world: World) -> Iterator[None]:
    """Start the controller again when it has ended, as its service manager does.

    The broker refuses to end a transaction that has lost its topic, and the controller's producer ends with it.
    """
    over = Event()

    def keep() -> None:
        while not over.wait(0.2):
            if world.running[-1].poll() is not None:
                world.start()

    keeper = Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def test_a_deleted_events_topic_keeps_nothing_back(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    with started_again(world):
        admin.delete_topics([world.topics.events])[world.topics.events].result(LIMIT_S)
        world.hand_over(world.next_command(CommandKind.PREPARE, windows=True))
        world.hand_over_rest()
        world.wait("end of the plan", world.round_ended, windows=True)
    world.check_epochs()
    world.check_placements()
    world.wait(
        "its end among the events", lambda: "ended" in world.trimtab("events", "--since", "1h", "--kind", "plan")
    )
