"""A journal that is not to be believed, on a real broker: nothing is guessed, an operator is asked."""

import time

from confluent_kafka import Consumer, TopicPartition
from played_cluster import LIMIT_S, World, wait_until_it_acts

from trimtab_controller.execution.journal import KEY
from trimtab_models.messages.commands import CommandKind, Phase


def last_entry(world: World) -> bytes:
    """What the journal ends with."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "t", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(world.topics.journal, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while (more := consumer.consume(100, timeout=1.0)) or not values:
        assert time.monotonic() < deadline
        values += [message.value() for message in more]
    consumer.close()
    return values[-1]


def test_a_corrupted_entry_is_a_hold_until_an_operator_gives_the_journal_up(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    world.running[-1].kill()
    world.running[-1].wait()
    whole = last_entry(world)
    changed = whole.replace(b'"attempt":1', b'"attempt":2', 1)
    assert changed != whole
    world.produce(world.topics.journal, KEY, changed)

    world.start()
    wait_until_it_acts(world, "on hold")
    world.ack(prepare, Phase.PREPARED, generation=3)
    for _ in range(3):
        world.publish_window()
    world.wait("decision", lambda: "on hold: the journal" in world.log_text().rpartition("accept-journal`")[2])
    world.follow()
    assert world.commands == [prepare], "neither a release nor anything new"
    status = world.status_when(
        "hold",
        lambda shown: shown["hold"] is not None and [d["reason"] for d in shown["decisions"][-1:]] == ["journal"],
    )
    assert status["hold"]["text"].startswith("the journal is not to be believed (corrupted): at offset ")
    assert len(status["nodes"]) == 3, "it sees all the same"
    assert world.metric("trimtab_controller_on_hold") == 1
    assert "trimtab resume --accept-journal" in world.trimtab("status")
    assert "on hold" in world.trimtab("plan")

    world.trimtab("resume", "--accept-journal", "--reason", "no hand-over is in flight")
    wait_until_it_acts(world, "acting as generation 2")
    fresh = world.next_command(CommandKind.PREPARE, 1, windows=True)
    assert fresh.epoch.generation == 2
    world.check_epochs()
    world.status_when("no hold", lambda shown: shown["hold"] is None)
    assert world.metric("trimtab_controller_on_hold") == 0
    assert "not on hold" in world.trimtab("resume", "--accept-journal", code=1)

    world.running[-1].kill()
    world.start()
    wait_until_it_acts(world, "goes on with plan")  # what was given up stays so
