"""How placements are published: in one record or in parts, and again when the topic has lost them."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import (
    APP,
    LIMITS,
    OPERATOR,
    T0,
    W0,
    W1,
    ack,
    handover,
    kg,
    plan,
    published,
    started,
)
from trimtab_controller.execution.events import (
    PlacementsLost,
    PlacementWanted,
    Publish,
    Resumed,
)
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.loop.publications import records_of, to_sign_again
from trimtab_protocol.messages.commands import Phase
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import KeyId, SigningKey

PARTS = replace(LIMITS, key_groups_per_part=2)
ALL = [b"app/sums/0", b"app/sums/1", b"app/sums/2", b"app"]


SAME = PlacementWanted(app=APP, owners={kg(at): W0 for at in range(5)})


def machine() -> ExecutionMachine:
    made = started(W0, W0, W0, W0, W0, limits=PARTS)
    made.on_event(T0, SAME)
    return made


def keys(publish: Publish) -> list[bytes]:
    """Of the records on the placements' topic; those of tombstones in upper case."""
    found = [row for row in records_of(publish, {}, Topics("c"), limited=True) if row.topic == Topics("c").placement]
    return [row.key if row.value is not None else row.key.upper() for row in found]


def test_a_large_placement_is_published_in_parts() -> None:
    publish = published(started(W0, W0, W0, W0, W0, limits=PARTS).on_event(T0, SAME))
    assert keys(publish) == ALL
    assert publish.execution.placements[APP] == publish.placements[0]
    assert publish.placements[0].part_size == 2
    assert publish.placements[0].owners == {OPERATOR: ((W0,),) * 5}


def test_a_step_publishes_the_parts_of_the_key_groups_that_move() -> None:
    made = machine()
    assert keys(published(made.on_event(T0, plan((0, W0, W1), (4, W0, W1))))) == [b"app/sums/0", b"app/sums/2", b"app"]
    made = machine()
    assert keys(published(made.on_event(T0, plan((3, W0, W1))))) == [b"app/sums/1", b"app"]
    released = made.on_event(T0 + 1, ack(handover(made).prepare, Phase.PREPARED, generation=7, lag_records=0))
    assert keys(published(released)) == [b"app/sums/1", b"app"]
    assert keys(published(made.on_event(T0 + 2, ack(handover(made).prepare, Phase.TOOK, pause_s=0.1)))) == []


def test_a_larger_part_in_the_configuration_counts_from_the_next_step_on() -> None:
    made = machine()
    made.on_event(T0, plan((0, W0, W1), (1, W0, W1), (3, W0, W1)))
    waiting = handover(made, 1)
    state = made.state
    # Of a plan that another leader began, half of the limit may be in flight.
    free = ExecutionMachine("c", replace(PARTS, handovers_in_flight=4, key_groups_per_part=5), state)
    publish = published(free.on_event(T0 + 1, Resumed()))
    assert waiting.id in [command.handover for command in publish.commands]
    assert keys(publish) == [b"APP/SUMS/0", b"APP/SUMS/1", b"APP/SUMS/2", b"app"]
    [placement] = publish.placements
    assert (placement.part_size, placement.of(OPERATOR, 3)) == (None, (W0, W1))


def test_a_small_placement_is_one_record() -> None:
    def adopted(count: int) -> PlacementWanted:
        return PlacementWanted(app=APP, owners={kg(at): W0 for at in range(count)})

    made = started(W0, limits=PARTS)
    assert keys(published(made.on_event(T0, adopted(2)))) == [b"app"]
    assert keys(published(made.on_event(T0, adopted(3)))) == [b"app/sums/0", b"app/sums/1", b"app"]
    assert keys(published(made.on_event(T0, adopted(2)))) == [b"APP/SUMS/0", b"APP/SUMS/1", b"app"]


def test_an_adoption_publishes_what_differs_and_deletes_what_is_gone() -> None:
    made = machine()
    owners = {kg(0): W0, kg(1): W0, kg(2): W1}
    assert keys(published(made.on_event(T0, PlacementWanted(app=APP, owners=owners)))) == [
        b"APP/SUMS/2",
        b"app/sums/1",
        b"app",
    ]


def test_a_successor_publishes_only_the_parts_that_change() -> None:
    made = machine()
    successor = ExecutionMachine("c", PARTS, replace(made.state, generation=2))
    assert keys(published(successor.on_event(T0, plan((3, W0, W1))))) == [b"app/sums/1", b"app"]


def test_when_the_topic_was_made_anew_everything_is_published_again() -> None:
    made = machine()
    publish = published(made.on_event(T0, PlacementsLost()))
    assert keys(publish) == ALL
    assert publish.placements[0].epoch == made.state.epoch
    assert keys(published(made.on_event(T0, plan((3, W0, W1))))) == [b"app/sums/1", b"app"]
    assert ExecutionMachine("c", PARTS, Execution(generation=1)).on_event(T0, PlacementsLost())


def test_records_of_an_older_key_are_all_signed_again() -> None:
    key = SigningKey.generate()
    placement = machine().state.placements[APP]
    own, other = key.public.id, KeyId("0" * 16)
    topics = Topics("c")
    assert to_sign_again([placement], {APP: frozenset({own})}, key, topics) == []
    for signers in ({own, other}, {other}, {own, None}):
        found = to_sign_again([placement], {APP: frozenset(signers)}, key, topics)
        assert [record.key for record in found] == ALL
        assert all(record.signed for record in found)


def test_the_journal_does_not_grow_with_the_app() -> None:
    def entry(key_groups: int) -> int:
        made = started(*[W0] * key_groups, limits=PARTS)
        publish = published(made.on_event(T0, plan((3, W0, W1))))
        return len(records_of(publish, {}, Topics("c"), limited=True)[0].value or b"")

    assert entry(2_000) == entry(5)
