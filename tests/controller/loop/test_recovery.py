"""What a successor makes of the compacted topics together."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_round
from tests.controller.decider.deciders import BALANCED, window
from tests.controller.decider.talking_job import HEAD, TAIL, TalkingJob
from tests.controller.loop.inbox_records import APP, TOPICS
from tests.controller.loop.test_events import status
from tests.kafka_record import Record
from tests.narrow import of_type
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.journal import KEY, Flaw, Hold, JournalEntry, encode_entry
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.reader import Reading
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.recovery import _inherited, _published, _status, recalled_costs
from trimtab_controller.loop.status_builder import StatusBuilder
from trimtab_controller.loop.telemetry import SETTLED, LastingConcerns
from trimtab_models.albic.fit import TupleCost, Unknown
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import records_of
from trimtab_protocol.messages.status import ConcernStatus, Status, status_key


def journalled(number: int, *, plan_in_flight: bool = False) -> Record:
    execution = Execution(
        generation=1, number=number, rounds={APP: a_round(None, plan="1.3")} if plan_in_flight else {}
    )
    return Record(TOPICS.journal, encode_entry(JournalEntry(execution=execution)), KEY)


def placed(number: int) -> Record:
    owners = {OperatorId("o"): ((WorkerId("w0"),),)}
    placement = Placement(cluster="c", app=APP, epoch=Epoch(1, number), owners=owners)
    return Record(TOPICS.placement, encoded(placement), APP.encode())


def taken_back(number: int) -> Record:
    placement = Placement(cluster="c", app=APP, epoch=Epoch(1, number), owners={})
    return Record(TOPICS.placement, encoded(placement), APP.encode())


def told(number: int, *, acting: bool = True) -> Record:
    status = Status(
        cluster="c", at=1.0, acting=acting, epoch=Epoch(1, number), paused=None, window_end=None, coverage=None
    )
    return Record(TOPICS.status, encoded(status), status_key(acting=acting))


def inherited(*records: Record, inbox: Inbox | None = None) -> JournalEntry | Hold:
    found, inbox = Reading(messages=list(records)), inbox or Inbox(TOPICS, lambda: 1000.0)
    published = _published(found, TOPICS, inbox)
    return _inherited(found, TOPICS, inbox, published, _status(found, TOPICS))


@pytest.mark.parametrize(
    "records",
    [
        [],
        [told(9, acting=False)],  # a dry run publishes no epoch of its own
        [placed(4), journalled(4), told(4)],
        [placed(2), journalled(4, plan_in_flight=True), told(3)],
        [Record(TOPICS.journal, b"x", b"another kind"), journalled(4)],
        [Record(TOPICS.placement, b"{", b"app"), placed(4), journalled(4)],  # a later one can be read
    ],
)
def test_what_fits_together_is_gone_on_with(records: list[Record]) -> None:
    assert isinstance(inherited(*records), JournalEntry)


@pytest.mark.parametrize(
    ("records", "flaw"),
    [
        ([placed(4)], Flaw.MISSING),
        ([told(4)], Flaw.MISSING),
        ([placed(5), journalled(4)], Flaw.TRUNCATED),
        ([told(5), placed(4), journalled(4)], Flaw.TRUNCATED),
        ([journalled(4, plan_in_flight=True)], Flaw.PLACEMENT),
        ([taken_back(4), journalled(4, plan_in_flight=True)], Flaw.PLACEMENT),
        ([taken_back(5), journalled(4)], Flaw.TRUNCATED),
        ([Record(TOPICS.placement, b"{", b"app"), journalled(4)], Flaw.PLACEMENT),
        ([Record(TOPICS.placement, b"{", b"app")], Flaw.PLACEMENT),
    ],
)
def test_what_does_not_fit_together_is_a_hold(records: list[Record], flaw: Flaw) -> None:
    assert of_type(Hold, inherited(*records)).flaw is flaw


def test_an_entry_that_cannot_be_read_is_counted_also_when_a_whole_one_stands_behind_it() -> None:
    inbox = Inbox(TOPICS, lambda: 1000.0)
    damaged = Record(TOPICS.journal, (journalled(3).value() or b"").replace(b'"number":3', b'"number":2'), KEY)

    assert isinstance(inherited(damaged, journalled(4), inbox=inbox), JournalEntry)
    assert inbox.rejected == {(TOPICS.journal, Fault.MALFORMED): 1}


@pytest.mark.parametrize(
    ("records", "newest"),
    [
        pytest.param([placed(3), Record(TOPICS.placement, None, APP.encode())], [], id="deleted"),
        pytest.param([placed(3), placed(4), placed(3)], [(Epoch(1, 4), False)], id="an old one once more"),
        pytest.param(
            [placed(3), taken_back(4), placed(3)], [(Epoch(1, 4), True)], id="forgotten, an old one once more"
        ),
    ],
)
def test_which_placement_of_an_app_is_the_last(records: list[Record], newest: list[tuple[Epoch, bool]]) -> None:
    published = _published(Reading(messages=records), TOPICS, Inbox(TOPICS, lambda: 1000.0))
    assert [(each.epoch, each.is_taken_back) for each in published.newest()] == newest
    assert published.flaw is None


W0, W1, OPERATOR = WorkerId("w0"), WorkerId("w1"), OperatorId("o")
BASE = Placement(cluster="c", app=APP, epoch=Epoch(1, 2), owners={OPERATOR: [(W0,)] * 7}, part_size=3)
NEXT = BASE.changed(Epoch(1, 3), {KeyGroup(APP, OPERATOR, 4): (W1,)})


def of_topic(*publications: tuple[Placement, Placement | None]) -> list[Record]:
    return [
        Record(TOPICS.placement, value, key)
        for placement, before in publications
        for key, value in records_of(placement, before)
    ]


IN_PARTS = of_topic((BASE, None), (NEXT, BASE))


def test_a_placement_in_parts_is_put_together_for_a_successor() -> None:
    inbox = Inbox(TOPICS, lambda: 1000.0)
    published = _published(Reading(messages=IN_PARTS), TOPICS, inbox)
    assert (published.newest(), published.flaw, published.epoch) == ([NEXT], None, Epoch(1, 3))
    assert isinstance(inherited(*IN_PARTS, journalled(4, plan_in_flight=True)), JournalEntry)


@pytest.mark.parametrize("lost", range(3))
def test_a_successor_holds_while_a_part_is_missing(lost: int) -> None:
    compacted = [*IN_PARTS[:1], *IN_PARTS[2:3], *IN_PARTS[4:]]
    assert isinstance(inherited(*compacted, journalled(4)), JournalEntry)
    del compacted[lost]
    found = of_type(Hold, inherited(*compacted, journalled(4)))
    assert (found.flaw, "(app app)" in found.detail) == (Flaw.PLACEMENT, True)


def test_a_successor_holds_while_a_part_is_an_old_one_written_once_more() -> None:
    old = IN_PARTS[1]
    assert isinstance(inherited(*IN_PARTS, old, journalled(4)), JournalEntry), "the newer one is still there"
    compacted = [*IN_PARTS[:1], *IN_PARTS[2:3], IN_PARTS[-1], old]
    assert of_type(Hold, inherited(*compacted, journalled(4))).flaw is Flaw.PLACEMENT


def test_a_journal_that_is_older_than_a_placement_that_is_not_whole_is_seen_as_such() -> None:
    assert of_type(Hold, inherited(IN_PARTS[-1], journalled(2))).newest == Epoch(1, 3)


def test_parts_whose_head_is_lost_make_a_successor_hold_and_its_epochs_are_higher() -> None:
    later = NEXT.changed(Epoch(7, 9), {KeyGroup(APP, OPERATOR, 0): (W1,)})
    found = of_type(Hold, inherited(*IN_PARTS, of_topic((later, NEXT))[0], journalled(4)))
    assert (found.flaw, found.newest) == (Flaw.TRUNCATED, Epoch(7, 9))


def test_parts_that_were_deleted_count_neither_as_refused_nor_as_missing() -> None:
    whole = Placement(cluster="c", app=APP, epoch=Epoch(1, 4), owners=NEXT.owners)
    inbox = Inbox(TOPICS, lambda: 1000.0)
    published = _published(Reading(messages=[*IN_PARTS, *of_topic((whole, NEXT))]), TOPICS, inbox)
    assert (published.newest(), published.flaw) == ([whole], None)
    assert not inbox.rejected


# ---- what a leader finds in its predecessor's status


def test_what_remote_tuples_cost_is_found_in_the_status_of_a_predecessor() -> None:
    decider, job = Decider(Settings(), Requirements(max_age_s=1e9), Execution(generation=1), acting=False), TalkingJob()
    for _ in range(6):
        snapshot = job.window()
        decider.on_event(snapshot.end_ms / 1000.0, SnapshotArrived(snapshot=snapshot))
    told = StatusBuilder("c", acting=True).status(1e6, decider, Execution(generation=1), {})
    found = recalled_costs(decoded(encoded(told), Status))
    fits = decider.known.together[APP].fits
    for operator, fit in fits.items():
        assert (found[APP, operator].sending, found[APP, operator].receiving) == tuple(
            cost if isinstance(cost, TupleCost) else Unknown.FEW for cost in (fit.sending, fit.receiving)
        )
    assert isinstance(found[APP, HEAD].sending, TupleCost)
    assert isinstance(found[APP, TAIL].receiving, TupleCost)


@pytest.mark.parametrize("freedom", [None, 0.0])
def test_a_status_that_says_no_costs_recalls_none(freedom: float | None) -> None:
    assert recalled_costs(None) == {}
    decider, job = Decider(Settings(), Requirements(max_age_s=1e9), Execution(generation=1), acting=False), TalkingJob()
    for _ in range(3):
        snapshot = job.window()
        decider.on_event(snapshot.end_ms / 1000.0, SnapshotArrived(snapshot=snapshot))
    told = StatusBuilder("c", acting=True).status(1e6, decider, Execution(generation=1), {})
    [app] = told.apps
    assert app.remote_costs is not None
    rows = tuple(replace(row, sending=replace(row.sending, freedom=freedom)) for row in app.remote_costs.operators)
    changed = replace(told, apps=(replace(app, remote_costs=replace(app.remote_costs, operators=rows)),))
    assert recalled_costs(changed)[APP, HEAD].sending is Unknown.FEW


# ---- A concern stays until windows in a row show that it does not hold, also after a takeover or a gap


OVER = Concern(kind=ConcernKind.OVER_CAPACITY, app=APP, workers=(), detail="w0 uses 120 %")
TOLD = status(concerns=(ConcernStatus(kind="over_capacity", app=APP, text=OVER.detail),
                        ConcernStatus(kind="of_a_later_version", app=APP, text="?")))  # fmt: skip


def after(made: LastingConcerns, *ends_s: float, found: tuple[Concern, ...] = ()) -> list[int]:
    """How many are kept after windows that end then."""
    kept = []
    for end_s in ends_s:
        made.observe(window(BALANCED, end_s).snapshot, found)
        kept.append(len(made.kept))
    return kept


def test_a_predecessors_concern_stays_until_so_many_windows_in_a_row_do_not_show_it() -> None:
    made = LastingConcerns(TOLD)
    assert made.kept == (OVER,)
    assert after(made, *(1000.0 + 10.0 * n for n in range(SETTLED))) == [1] * (SETTLED - 1) + [0]
    assert LastingConcerns(None).kept == ()


def test_a_repetition_shows_nothing_and_a_gap_begins_the_count_anew() -> None:
    made = LastingConcerns(TOLD)
    assert after(made, 1000.0, 1010.0, 1010.0, 1050.0, 1060.0, 1070.0, 1080.0) == [1] * 7
    assert after(made, 1090.0) == [0]


def test_what_a_window_shows_is_not_kept_besides_and_ends_with_the_next_one() -> None:
    made = LastingConcerns(None)
    assert after(made, *(1000.0 + 10.0 * n for n in range(SETTLED)), found=(OVER,)) == [0] * SETTLED
    assert after(made, 1050.0) == [0]


def test_a_concern_from_before_a_gap_stays_too() -> None:
    made = LastingConcerns(None)
    after(made, *(1000.0 + 10.0 * n for n in range(SETTLED)), found=(OVER,))
    assert after(made, 1100.0, 1110.0) == [1, 1]
    assert after(made, 1120.0, found=(OVER,)) == [0]


def test_that_a_worker_was_given_up_ends_with_the_first_window_that_does_not_show_it() -> None:
    made = LastingConcerns(None)
    crashed = Concern(kind=ConcernKind.WORKER_CRASHES, app=APP, workers=(), detail="w0 crashed")
    assert after(made, 1000.0, found=(crashed, OVER)) == [0]
    assert after(made, 1010.0) == [1]
    assert made.kept == (OVER,)
