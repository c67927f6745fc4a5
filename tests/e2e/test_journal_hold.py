"""A journal that cannot be trusted, on a real broker: nothing is guessed, an operator is asked."""

from flights.readback import read_topic
from tests.e2e.played_cluster import World, wait_until_it_acts
from trimtab_controller.execution.journal import KEY, Flaw
from trimtab_protocol.messages.commands import CommandKind, Phase


def entries(world: World) -> list[bytes]:
    """What the journal has held."""
    return [row.value or b"" for row in read_topic(world.bootstrap, world.topics.journal)]


def hold_by(world: World, value: bytes | None, flaw: Flaw) -> None:
    """Let the journal end with `value`: a controller that starts now is on hold because of that flaw."""
    world.produce(world.topics.journal, KEY, value)
    seen = len(world.log_text())
    world.start()
    wanted = f"on hold: the journal cannot be trusted ({flaw}): "
    world.wait(wanted, lambda: wanted in world.log_text()[seen:])


def test_a_journal_not_to_be_believed_is_a_hold_until_an_operator_gives_it_up(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    world.running[-1].kill()
    world.running[-1].wait()
    whole = entries(world)[-1]
    changed = whole.replace(b'"attempt":1', b'"attempt":2', 1)
    assert changed != whole

    for value in (whole[:-30], changed):
        if len(world.running) > 1:
            world.running[-1].terminate()  # it gives its lease up at once
            world.running[-1].wait()
        hold_by(world, value, Flaw.CORRUPTED)
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
    assert status["hold"]["text"].startswith("the journal cannot be trusted (corrupted): at offset ")
    assert len(status["nodes"]) == 3, "it sees all the same"
    assert status["rejected"][f"{world.topics.journal}.malformed"] == 1, "the entry that was cut short"
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
    assert "accept" not in world.trimtab("status"), "the acceptance is answered"
    assert "not on hold" in world.trimtab("resume", "--accept-journal", code=1)

    world.running[-1].kill()
    world.start()
    wait_until_it_acts(world, "goes on with plan")  # what was given up stays so
