"""The journal's topic is deleted under a controller that acts: a hold that says so, not a silence without end."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.e2e.played_cluster import LIMIT_S, World, wait_until_it_acts
from trimtab_protocol.messages.commands import CommandKind, Phase


@pytest.mark.scenario  # two attempts to commit take 20 s
def test_a_deleted_journal_is_made_anew_and_missing_until_an_operator_accepts_that(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.delete_topics([world.topics.journal])[world.topics.journal].result(LIMIT_S)

    world.ack(prepare, Phase.PREPARED, generation=3, lag_records=0)  # what follows from it cannot be journalled
    held = "on hold: the journal cannot be trusted (missing)"
    world.wait(held, lambda: held in world.log_text(), windows=True)
    assert f"topics were deleted: {world.topics.journal}" in world.log_text()
    assert [each.poll() for each in world.running] == [None], "the controller is still the same process"
    world.follow()
    assert [each for each in world.commands if each.kind is CommandKind.RELEASE] == [], "not published without it"

    seen, before = len(world.log_text()), len(world.commands)
    world.trimtab("resume", "--accept-journal", "--reason", "the topic was deleted")
    world.wait("it acts", lambda: "acting as generation" in world.log_text()[seen:], windows=True)
    assert world.next_command(CommandKind.PREPARE, before, windows=True).epoch > prepare.epoch
    world.check_epochs()
