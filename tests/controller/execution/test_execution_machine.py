"""The execution machine: how plans are carried out, and what placements and successors follow."""

from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    BEGUN,
    CLUSTER,
    HOSTS,
    LIMITS,
    OPERATOR,
    PREPARE,
    PREPARING,
    RELEASE,
    T0,
    UNCERTAIN,
    W0,
    W1,
    W2,
    ack,
    handover,
    kg,
    plan,
    published,
    refused,
    released,
    rows,
    started,
)
from tests.narrow import not_none, of_type, only_one
from trimtab_controller.execution.disruption import Disruption, Pauses
from trimtab_controller.execution.events import (
    AckSeen,
    HandoverEnded,
    PlacementsLost,
    PlacementWanted,
    Publish,
    RestoreEnded,
    Resumed,
    RoundEnded,
    WindowSeen,
)
from trimtab_controller.execution.handovers import RESOLVE_TIMEOUTS
from trimtab_controller.execution.journal import (
    Flaw,
    Hold,
    JournalEntry,
    JournalRecord,
    decode_entry,
    encode_entry,
    inherit,
    read_record,
)
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.loop.publications import records_of, to_sign_again
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, HostId, Topics
from trimtab_protocol.signing.keys import KeyId, SigningKey


def test_a_hand_over_goes_from_prepared_over_its_release_to_its_end() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))

    [given, warm] = machine.on_event(
        T0 + 1, ack(PREPARE, Phase.PREPARED, generation=7, lag_records=3, state_bytes=5000)
    )
    assert isinstance(given, Publish)
    assert warm == RestoreEnded(handover=PREPARING, seconds=1.0)
    assert given.commands == (RELEASE,)
    assert rows(given) == {0: (W1, W0), 1: (W0,)}, "the target owns, the source stands by"

    assert machine.on_event(T0 + 2, ack(RELEASE, Phase.RELEASED)) == []

    ended = machine.on_event(T0 + 3, ack(PREPARE, Phase.TOOK, pause_s=0.2))
    done = replace(
        PREPARING,
        phase=HandoverPhase.DONE,
        since=T0 + 3,
        wake_at=None,
        release=RELEASE,
        state_bytes=5000,
        pause_s=0.2,
    )
    over = replace(BEGUN, handovers=(done,), ended_at=T0 + 3)
    row = Pauses(began_at=T0 + 3, ended_at=T0 + 3, measured_s=0.2, key_groups=1)
    paused = Disruption(apps={APP: (row,)})
    assert ended == [
        Publish(execution=replace(given.execution, number=4, rounds={APP: over}, disruption=paused)),
        HandoverEnded(handover=done),
        RoundEnded(round=over),
    ]
    assert (machine.wake_at, machine.on_tick(T0 + 1000)) == (None, [])
    assert machine.on_event(T0 + 4, ack(PREPARE, Phase.TOOK, pause_s=0.2)) == [], "once more"


def test_each_further_attempt_waits_longer() -> None:
    machine = started(W0, limits=replace(LIMITS, attempts=3))
    machine.on_event(T0, plan((0, W0, W1)))
    waits = []
    for _ in range(2):
        machine.on_event(T0, refused(handover(machine).prepare, Refusal.GENERATION))
        waits.append((machine.wake_at or T0) - T0)
        machine.on_tick(T0 + 10)

    assert waits == [2.0, 4.0]


def test_key_groups_of_one_hand_over_that_the_reports_show_apart_stay_where_they_are() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7))
    machine.on_tick(T0 + 23)

    apart = published(
        machine.on_event(T0 + 40, WindowSeen(start_s=T0 + 30, end_s=T0 + 30, owners={kg(0): W1, kg(1): W0}))
    )

    assert handover(machine).phase is HandoverPhase.FAILED
    assert rows(apart) == {0: (W1,), 1: (W0,)}


def test_moves_are_grouped_by_pair_and_limited_in_size_and_number() -> None:
    machine = started(W0, W0, W0, W1, limits=replace(LIMITS, handovers_in_flight=2))
    moves = ((3, W1, W2), (0, W0, W1), (1, W0, W1), (2, W0, W1))
    begun = published(machine.on_event(T0, plan(*moves)))
    assert [(c.target, c.key_groups) for c in begun.commands] == [(W2, (kg(3),)), (W1, (kg(0), kg(1)))]
    assert [row.phase for row in machine.state.rounds[APP].handovers] == [  # type: ignore[union-attr]
        HandoverPhase.PREPARING,
        HandoverPhase.PREPARING,
        HandoverPhase.WAITING,
    ], "w1 gives away first, then receives"


def test_a_free_place_is_taken_in_the_publication_that_frees_it() -> None:
    machine = started(W0, W0, limits=replace(LIMITS, key_groups_per_handover=1))
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))
    machine.on_event(T0, ack(handover(machine).prepare, Phase.PREPARED, generation=7))
    first = handover(machine)
    done, ended = machine.on_event(T0, ack(first.prepare, Phase.TOOK, pause_s=0.1))
    assert isinstance(done, Publish)
    assert [(c.kind, c.key_groups) for c in done.commands] == [(CommandKind.PREPARE, (kg(1),))]
    assert rows(done) == {0: (W1, W0), 1: (W0, W1)}
    assert ended == HandoverEnded(handover=handover(machine))


@pytest.mark.parametrize(
    "change",
    [{"host": HostId("h9")}, {"worker": W2}, {"command_id": "0" * 32}],
)
def test_an_ack_from_somebody_else_changes_nothing(change: dict[str, object]) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    before = machine.state
    told = ack(handover(machine).prepare, Phase.PREPARED, generation=7).ack
    assert machine.on_event(T0, AckSeen(ack=replace(told, **change))) == []  # type: ignore[arg-type]
    assert machine.state is before


def test_repeats_and_spurious_ticks_change_nothing() -> None:
    machine = started(W0)
    row = released(machine)
    before = machine.state
    assert machine.on_event(T0 + 2, ack(row.prepare, Phase.PREPARED, generation=7)) == []
    assert machine.on_event(T0 + 2, ack(row.prepare, Phase.ACCEPTED)) == []
    assert machine.on_tick(T0 + 2) == []
    assert machine.state is before


def test_a_successor_publishes_the_commands_in_flight_with_their_ids() -> None:
    machine = started(W0)
    row = released(machine)
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    again = only_one(Publish, successor.on_event(T0 + 5, Resumed(answered=("accept-journal",))))
    assert (again.commands, again.placements, again.answered) == ((row.release,), (), ("accept-journal",))
    assert again.execution.epoch == Epoch(2, 4)
    assert successor.state.hosts == {HOSTS[W0], HOSTS[W1]}, "their answers are waited for"
    over = published(successor.on_event(T0 + 6, ack(row.prepare, Phase.TOOK, pause_s=0.1)))
    assert (over.execution.busy(APP), over.execution.epoch) == (False, Epoch(2, 5))


def test_a_placement_follows_the_reports() -> None:
    machine = started(W0, W0)
    released(machine)
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    publish = only_one(
        Publish, machine.on_event(T0 + 4, PlacementWanted(app=APP, owners={kg(0): W1, kg(1): W2, kg(2): W2}))
    )
    assert rows(publish) == {0: (W1, W0), 1: (W2,), 2: (W2,)}, "standbys stay, a new key group is added"
    assert publish.placements[0].epoch == publish.execution.epoch == Epoch(1, 5)


def test_a_plan_needs_a_placement_to_go_back_to() -> None:
    machine = ExecutionMachine(CLUSTER, LIMITS, Execution(generation=1))
    with pytest.raises(ValueError, match="a plan needs a published placement"):
        machine.on_event(T0, plan((0, W0, W1)))


def test_one_plan_in_flight() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    before = machine.state
    for event in (plan((1, W0, W1)), PlacementWanted(app=APP, owners={kg(0): W2})):
        with pytest.raises(ValueError, match="in flight"):
            machine.on_event(T0, event)
    assert machine.state is before


# ---- hand-overs that are refused, or of which nobody speaks


@pytest.mark.parametrize("refusal", [Refusal.GUARD, Refusal.PRECONDITION, Refusal.CATCH_UP_TIMEOUT])
def test_a_refused_prepare_ends_in_the_previous_placement_under_a_new_epoch(refusal: Refusal) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    prepare = handover(machine).prepare
    publish, failed, over = machine.on_event(T0 + 1, refused(prepare, refusal))
    assert isinstance(publish, Publish)
    assert (rows(publish), publish.placements[0].epoch) == ({0: (W0,)}, Epoch(1, 3))
    assert [(c.kind, c.worker, c.handover) for c in publish.commands] == [(CommandKind.ABANDON, W1, "1.2-0")]
    assert failed == HandoverEnded(handover=handover(machine))
    assert handover(machine).phase is HandoverPhase.FAILED
    assert isinstance(over, RoundEnded)
    assert machine.on_event(T0 + 2, ack(prepare, Phase.PREPARED, generation=7)) == [], "too late"


@pytest.mark.parametrize("refusal", [Refusal.GENERATION, Refusal.NOT_PREPARED, Refusal.OLD_EPOCH])
def test_what_passes_is_prepared_for_again_until_the_attempts_are_used_up(refusal: Refusal) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    first = handover(machine).prepare
    back = only_one(Publish, machine.on_event(T0, refused(first, refusal)))
    assert (rows(back), back.commands, machine.wake_at) == ({0: (W0,)}, (), T0 + 2.0)
    assert machine.on_tick(T0 + 1.9) == []
    again = only_one(Publish, machine.on_tick(T0 + 2.0))
    [second] = again.commands
    assert (second.kind, second.epoch, second.id != first.id) == (CommandKind.PREPARE, Epoch(1, 4), True)  # type: ignore[union-attr]
    assert machine.on_event(T0 + 3, ack(first, Phase.PREPARED, generation=7)) == [], "of the first attempt"
    last = published(machine.on_event(T0 + 3, refused(second, refusal)))
    assert (handover(machine).phase, rows(last)) == (HandoverPhase.FAILED, {0: (W0,)})


def test_a_prepare_without_answer_is_abandoned() -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    assert machine.on_tick(T0 + 61) == []
    publish = published(machine.on_tick(T0 + 62))
    assert [c.kind for c in publish.commands] == [CommandKind.ABANDON]
    assert (rows(publish), handover(machine).phase) == ({0: (W0,)}, HandoverPhase.FAILED)


def test_a_release_refused_for_sure_gives_back_at_once() -> None:
    machine = started(W0)
    publish = published(machine.on_event(T0 + 2, refused(released(machine).release, Refusal.DRAIN_TIMEOUT)))
    assert (rows(publish), handover(machine).phase) == ({0: (W0,)}, HandoverPhase.FAILED)


@pytest.mark.parametrize(
    "word",
    [
        *(lambda row, refusal=refusal: refused(row.release, refusal) for refusal in UNCERTAIN),
        lambda row: ack(row.release, Phase.EXPIRED),
        lambda row: refused(row.prepare, Refusal.COMMIT_REFUSED),
        None,
    ],
)
def test_after_an_unclear_release_the_reports_decide(word: object) -> None:
    def unclear() -> ExecutionMachine:
        machine = started(W0)
        row = released(machine)
        actions = machine.on_event(T0 + 23, word(row)) if callable(word) else machine.on_tick(T0 + 23)
        assert published(actions).placements == (), "the placement names the target until more is known"
        assert handover(machine).phase is HandoverPhase.RESOLVING
        return machine

    machine = unclear()
    assert machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 22.9, end_s=T0 + 22.9, owners={kg(0): W1})) == [], (
        "began too early"
    )
    assert machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={})) == [], (
        "not reported is not known"
    )
    machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W1}))
    assert handover(machine).phase is HandoverPhase.DONE

    machine = unclear()
    back = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W0})))
    assert (handover(machine).phase, rows(back)) == (HandoverPhase.WAITING, {0: (W0,)}), "another attempt is left"

    machine = unclear()
    other = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W2})))
    assert (handover(machine).phase, rows(other)) == (HandoverPhase.FAILED, {0: (W2,)})

    machine = unclear()
    late = machine.on_event(T0 + 30, ack(handover(machine).prepare, Phase.TOOK, pause_s=9.0))
    assert handover(machine).phase is HandoverPhase.DONE
    assert published(late).placements == ()


def test_what_the_target_gave_back_stays_at_its_source_without_another_attempt() -> None:
    machine = started(W0)
    machine.on_event(T0 + 5, refused(released(machine).prepare, Refusal.CATCH_UP_TIMEOUT))
    back = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 10, end_s=T0 + 10, owners={kg(0): W0})))

    row = handover(machine)
    assert (row.phase, row.refusal, rows(back)) == (HandoverPhase.FAILED, Refusal.CATCH_UP_TIMEOUT, {0: (W0,)})
    assert "catch_up_timeout" in (row.detail or "")
    assert [command.kind for command in back.commands] == [CommandKind.ABANDON]


def given_up() -> ExecutionMachine:
    """The first attempt was released; the reports showed it at the source: it waits for the next one."""
    machine = started(W0)
    released(machine)
    machine.on_tick(T0 + 23)
    machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W0}))
    assert handover(machine).phase is HandoverPhase.WAITING
    return machine


def test_what_was_given_up_too_early_is_done_and_the_placement_follows() -> None:
    machine = given_up()
    late = published(machine.on_event(T0 + 31, ack(handover(machine).prepare, Phase.TOOK, pause_s=9.0)))
    assert (handover(machine).phase, rows(late)) == (HandoverPhase.DONE, {0: (W1, W0)})


def test_the_next_attempt_knows_nothing_of_the_last_one_s_release() -> None:
    machine = given_up()
    first = handover(machine)
    assert machine.on_event(T0 + 31, refused(first.prepare, Refusal.COMMIT_REFUSED)) == []
    machine.on_tick(T0 + 32)
    again = handover(machine)
    assert (again.phase, again.attempt, again.release) == (HandoverPhase.PREPARING, 2, None)
    for word in (ack(first.release, Phase.EXPIRED), ack(again.prepare, Phase.TOOK)):
        assert machine.on_event(T0 + 33, word) == []


def test_a_release_that_nobody_can_tell_anything_about_ends_all_the_same() -> None:
    machine = started(W0)
    released(machine)
    machine.on_tick(T0 + 23)
    limit = T0 + 23 + RESOLVE_TIMEOUTS * 20
    assert machine.on_tick(limit - 0.1) == []
    publish, ended, over = machine.on_tick(limit)
    assert isinstance(publish, Publish)
    assert (publish.placements, publish.commands) == ((), ())
    assert handover(machine).phase is HandoverPhase.UNRESOLVED
    assert (type(ended), type(over)) == (HandoverEnded, RoundEnded)


def test_what_an_agent_gives_as_its_reason_is_cut_for_a_thousand_of_them_are_one_message() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(
        T0 + 1, ack(handover(machine).prepare, Phase.REFUSED, refusal=Refusal.GUARD, detail="\U0001f600" * 4000)
    )
    told = not_none(handover(machine).detail)
    assert told.startswith("w1 on h1: guard (\U0001f600")
    assert 1000 * len(told.encode()) < MAX_MESSAGE_BYTES / 8


# ---- how placements are published: in one record or in parts, and again when the topic has lost them


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


def test_an_adoption_publishes_what_differs_and_deletes_what_is_gone() -> None:
    made = machine()
    owners = {kg(0): W0, kg(1): W0, kg(2): W1}
    assert keys(published(made.on_event(T0, PlacementWanted(app=APP, owners=owners)))) == [
        b"APP/SUMS/2",
        b"app/sums/1",
        b"app",
    ]


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


# ---- what a successor believes of a journal, and what ends in a hold


FIRST, SECOND, THIRD = (
    JournalEntry(execution=Execution(generation=generation, number=number), acks_read={0: 17, 1: 0, 2: 5})
    for generation, number in ((1, 7), (1, 8), (2, 1))
)


def journal(*values: JournalEntry | bytes | None) -> list[JournalRecord]:
    """Records at the even offsets, as transactions leave them."""
    payloads = [encode_entry(value) if isinstance(value, JournalEntry) else value for value in values]
    return [read_record(2 * index, payload) for index, payload in enumerate(payloads)]


@pytest.mark.parametrize(
    ("records", "published", "expected"),
    [
        (journal(), NO_EPOCH, JournalEntry(execution=Execution(generation=0))),
        (journal(FIRST), NO_EPOCH, FIRST),
        (journal(FIRST, SECOND, THIRD), Epoch(2, 1), THIRD),
        (journal(FIRST, THIRD), Epoch(1, 8), THIRD),  # compacted: what is older does not matter
        (journal(b"not readable", THIRD), Epoch(1, 8), THIRD),  # superseded by a whole state
    ],
)
def test_the_last_entry_is_believed_when_nothing_newer_is_known(
    records: list[JournalRecord], published: Epoch, expected: JournalEntry
) -> None:
    assert inherit(records, published) == expected


@pytest.mark.parametrize(
    ("records", "published", "flaw", "newest"),
    [
        (journal(), Epoch(3, 4), Flaw.MISSING, Epoch(3, 4)),
        (journal(FIRST, None), NO_EPOCH, Flaw.MISSING, Epoch(1, 7)),
        (journal(FIRST, encode_entry(SECOND)[:-20]), NO_EPOCH, Flaw.CORRUPTED, Epoch(1, 7)),
        (journal(FIRST, b""), Epoch(1, 9), Flaw.CORRUPTED, Epoch(1, 9)),
        (journal(encode_entry(SECOND).replace(b"17", b"18")), NO_EPOCH, Flaw.CORRUPTED, NO_EPOCH),
        (journal(FIRST), Epoch(1, 8), Flaw.TRUNCATED, Epoch(1, 8)),
        (journal(FIRST, SECOND), Epoch(2, 1), Flaw.TRUNCATED, Epoch(2, 1)),
        (journal(THIRD, SECOND), Epoch(1, 8), Flaw.DISORDERED, Epoch(2, 1)),
    ],
)
def test_what_cannot_be_the_end_of_the_journal_is_a_hold(
    records: list[JournalRecord], published: Epoch, flaw: Flaw, newest: Epoch
) -> None:
    found = of_type(Hold, inherit(records, published))
    assert (found.flaw, found.newest) == (flaw, newest)
    assert str(flaw) in found.reason


def test_an_accepted_hold_accepts_no_other() -> None:
    holds = [
        inherit(journal(FIRST, b"{"), NO_EPOCH),
        inherit(journal(FIRST, SECOND, b"{"), NO_EPOCH),
        inherit(journal(FIRST, b"["), NO_EPOCH),
        inherit(journal(), Epoch(1, 7)),
        inherit(journal(), Epoch(1, 8)),
    ]
    assert len({hold.id for hold in holds if isinstance(hold, Hold)}) == len(holds)
    assert inherit(journal(), Epoch(1, 7)) == holds[3]


def test_every_single_changed_byte_of_an_entry_is_found() -> None:
    payload = encode_entry(THIRD)
    for index in range(len(payload)):
        for flip in (0x01, 0x10):
            changed = payload[:index] + bytes([payload[index] ^ flip]) + payload[index + 1 :]
            with pytest.raises(BadMessage):
                decode_entry(changed)
    for size in range(len(payload)):
        with pytest.raises(BadMessage):
            decode_entry(payload[:size])
    assert decode_entry(payload) == THIRD


def test_an_entry_of_an_earlier_version_is_called_so() -> None:
    with pytest.raises(BadMessage) as caught:
        decode_entry(b'{"v":1,"generation":1,"number":1,"acks_read":[],"round":null,"scalings":[]}')
    assert caught.value.fault is Fault.VERSION
