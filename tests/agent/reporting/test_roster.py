"""What a host's workers give in its report: complete, partial, stale, clamped, away."""

from dataclasses import replace
from typing import Any

import pytest

from trimtab_agent.reporting.roster import LATE_INTERVALS, MAX_STATISTICS, Roster, Rows, merge
from trimtab_agent.sampler.derive import ProcessUse
from trimtab_protocol.messages.local import Hello, Statistics
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Absence, KeyGroupSample, Mark, PairSample, WorkerSample, WorkerState

W0, W1 = WorkerId("w0"), WorkerId("w1")
APP = AppId("flights")
HELLO = Hello(app=APP, worker=W0, pid=1, steering=True, reason=None, operators={}, versions={})


def key_group(partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId("sums"), partition)


def sample(partition: int = 0, cpu_s: float | None = 0.1, tuples_in: int | None = 10, **more: Any) -> KeyGroupSample:
    return KeyGroupSample(key_group=key_group(partition), worker=W0, cpu_s=cpu_s, tuples_in=tuples_in, **more)


def pair(tuples: int, direct: int | None = None) -> PairSample:
    return PairSample(source=key_group(0), target=key_group(1), tuples=tuples, bytes=10 * tuples, direct=direct)


def said(*samples: KeyGroupSample, interval_s: float = 1.0, **changes: Any) -> Statistics:
    values: dict[str, Any] = {
        "at_ms": 1000, "interval_s": interval_s, "state": WorkerState.RUNNING, "cpu_s": 0.2, "epoch": Epoch(1, 2),
        "generation": 7, "complete": True, "key_groups": samples, "pairs": (), **changes,
    }  # fmt: skip
    return Statistics(**values)


def roster(*statistics: Statistics) -> Roster:
    made = Roster({W0: 0.25, W1: None}, 1.0)
    made.connect(HELLO)
    for one in statistics:
        made.report(W0, one)
    return made


def marks(rows: Rows) -> tuple[Mark, ...]:
    return rows.workers[0].marks


def test_a_complete_row_has_no_marks() -> None:
    rows = roster(said(sample(), pairs=(pair(3),))).take({W0: ProcessUse(cpu_s=0.3, memory_bytes=99)}, 1.0)

    assert rows == Rows(
        workers=(
            WorkerSample(
                worker=W0, app=APP, state=WorkerState.RUNNING, capacity=0.25, cpu_s=0.3, memory_bytes=99,
                steering=True, epoch=Epoch(1, 2), generation=7, marks=(),
            ),
            WorkerSample(
                worker=W1, app=None, state=WorkerState.AWAY, capacity=1.0, cpu_s=None, steering=False, marks=()
            ),
        ),
        key_groups=(sample(),),
        pairs=(pair(3),),
    )  # fmt: skip


def test_what_the_app_consists_of_and_asks_for_and_why_its_loads_are_unknown_is_reported() -> None:
    made = Roster({W0: 0.25}, 1.0)
    made.connect(replace(HELLO, operators={OperatorId("sums"): 64}))
    row = made.take({}, 1.0).workers[0]
    assert (row.operators, row.standbys, row.unknown) == ({"sums": 64}, None, None), "declared, nothing measured yet"
    made.report(W0, said(sample(), interval_s=0.5, standbys=1, cold=5, unknown="no base yet"))
    made.report(W0, said(sample(), interval_s=0.5, standbys=2, cold=3))
    row = made.take({}, 1.0).workers[0]
    assert (row.standbys, row.cold, row.unknown) == (2, 3, "no base yet"), "in a part of the interval"
    made.report(W0, said(sample(), standbys=2))
    assert made.take({}, 1.0).workers[0].cold is None, "an older plug-in says nothing of it"
    made.report(W0, said(sample(), standbys=2))
    assert made.take({}, 1.0).workers[0].unknown is None
    assert made.take({}, 1.0).workers[0].standbys == 2, "stale, but nothing else was said"
    assert roster().take({}, 1.0).workers[0].operators is None, "its metadata was not there yet"


def test_why_a_worker_only_reports_is_reported_as_far_as_a_report_can_hold_it() -> None:
    made = Roster({W0: 0.25}, 1.0)
    for reason, told in (
        ("workers differ: w0 against w1", "workers differ: w0 against w1"),
        ('table "sums": store memory://, expected [rocksdb]', "table 'sums': store memory://, expected (rocksdb)"),
        ("x" * 4000, "x" * 200),
        (None, None),
    ):
        made.connect(replace(HELLO, steering=reason is None, reason=reason))
        made.report(W0, said(sample()))
        row = made.take({}, 1.0).workers[0]
        assert (row.steering, row.reason) == (reason is None, told)
    made.connect(replace(HELLO, reason="the broker does not know these topics: orders"))
    assert made.take({}, 1.0).workers[0].reason == "the broker does not know these topics: orders", "though it steers"


def test_how_long_a_worker_waits_for_a_core_is_reported_where_it_is_known() -> None:
    made = roster(said(sample()))
    assert [row.waiting for row in made.take({}, 1.0, waiting={W0: 0.3, W1: 0.5}).workers] == [0.3, None]
    assert [row.waiting for row in made.take({}, 1.0).workers] == [None, None]


@pytest.mark.parametrize(
    ("statistics", "clamped", "expected"),
    [
        (said(complete=False), False, (Mark.PARTIAL,)),
        (said(interval_s=0.5), False, (Mark.PARTIAL,)),
        (said(), True, (Mark.CLAMPED,)),
        (said(complete=False), True, (Mark.PARTIAL, Mark.CLAMPED)),
    ],
    ids=["the plug-in says so", "only half of the interval", "clamped", "both"],
)
def test_marks(statistics: Statistics, clamped: bool, expected: tuple[Mark, ...]) -> None:
    use = {W0: ProcessUse(cpu_s=1.0, memory_bytes=0, clamped=clamped)}

    assert marks(roster(statistics).take(use, 1.0)) == expected


def test_two_statistics_in_one_interval_are_added_and_scaled_to_it() -> None:
    first = said(sample(cpu_s=0.2, tuples_in=10, backlog=5), sample(1), pairs=(pair(4),))
    second = said(sample(cpu_s=0.4, tuples_in=30, backlog=1), pairs=(pair(8),), generation=8)

    merged = merge([first, second], 1.0)

    assert merged.key_groups == (sample(cpu_s=pytest.approx(0.3), tuples_in=20, backlog=1),)  # 1 is owned no more
    assert merged.pairs == (pair(6),)
    assert (merged.cpu_s, merged.generation, merged.complete, merged.interval_s) == (0.2, 8, True, 1.0)


def test_what_skipped_the_broker_is_added_and_unknown_if_a_part_does_not_say_it() -> None:
    assert merge([said(pairs=(pair(4, 4),)), said(pairs=(pair(8, 2),))], 1.0).pairs == (pair(6, 3),)
    one, other = replace(pair(4), topic="words"), replace(pair(8), topic="lines")
    assert merge([said(pairs=(one, other)), said(pairs=(one,))], 1.0).pairs == (one, replace(pair(4), topic="lines"))
    assert merge([said(pairs=(pair(4),)), said(pairs=(pair(8, 2),))], 1.0).pairs == (pair(6),)
    assert merge([said(), said(pairs=(pair(8, 2),))], 1.0).pairs == (pair(4, 1),)  # without traffic there is no pair


def test_late_statistics_are_scaled_down_so_that_rates_are_right() -> None:
    merged = merge([said(sample(cpu_s=0.4, tuples_in=40, state_bytes=7), interval_s=4.0, cpu_s=0.8)], 1.0)

    assert merged.key_groups == (sample(cpu_s=0.1, tuples_in=10, state_bytes=7),)
    assert (merged.cpu_s, merged.complete) == (0.2, True)


def test_sums_of_less_than_the_interval_stand_and_are_called_incomplete() -> None:
    short = said(sample(cpu_s=0.2, tuples_in=10), interval_s=0.25)

    merged = merge([short, short], 1.0)

    assert merged.key_groups == (sample(cpu_s=0.4, tuples_in=20),)
    assert (merged.cpu_s, merged.complete) == (0.4, False)


def test_a_worker_may_be_late_and_what_it_says_then_covers_the_time_before() -> None:
    """A handler that computes for 2.7 s keeps the app's event loop; then the plug-in is on time again."""
    made = roster(said(sample(cpu_s=0.5)))
    rows = [made.take({}, 1.0)]
    for interval_s in (None, None, 2.7, 0.8):
        if interval_s is not None:
            made.report(
                W0, said(sample(cpu_s=0.5 * interval_s, tuples_in=round(10 * interval_s)), interval_s=interval_s)
            )
        rows.append(made.take({}, 1.0))

    assert [marks(row) for row in rows] == [()] * 5
    loads = [[(each.cpu_s, each.tuples_in) for each in row.key_groups] for row in rows]
    assert loads[1:] == [[], [], [(pytest.approx(0.5), 10)], [(pytest.approx(0.5), 10)]]


@pytest.mark.parametrize(("interval_s", "late"), [(0.5, 10), (1.0, 5), (10.0, LATE_INTERVALS)])
def test_a_worker_is_stale_before_its_first_word_and_when_it_is_silent_for_long(interval_s: float, late: int) -> None:
    made = roster()
    assert marks(made.take({}, interval_s)) == (Mark.STALE,)
    made.report(W0, said(sample(), interval_s=interval_s))
    found = [marks(made.take({}, interval_s)) for _ in range(2 + late)]
    assert found == [()] * (1 + late) + [(Mark.STALE,)]
    made.connect(HELLO)
    assert marks(made.take({}, interval_s)) == (Mark.STALE,)
    made.report(W0, said(sample(), interval_s=0.8 * interval_s))
    assert marks(made.take({}, interval_s)) == (Mark.PARTIAL,), "it has just started"


def test_one_incomplete_part_makes_the_whole_incomplete() -> None:
    assert not merge([said(sample(), interval_s=0.5, complete=False), said(sample(), interval_s=0.5)], 1.0).complete


def test_of_statistics_that_nobody_asked_for_the_newest_count() -> None:
    flood = [said(sample(tuples_in=number), interval_s=1.0) for number in range(MAX_STATISTICS + 5)]
    newest = flood[-MAX_STATISTICS:]

    [found] = roster(*flood).take({}, float(MAX_STATISTICS)).key_groups

    assert found.tuples_in == sum(one.key_groups[0].tuples_in or 0 for one in newest)


def test_a_timer_a_little_off_changes_nothing() -> None:
    one = said(sample(), interval_s=1.005)

    assert merge([one], 1.0) is one


def test_a_worker_nobody_configured_is_reported_while_it_is_there() -> None:
    made = Roster({}, 0.5)
    made.connect(HELLO)
    assert made.take({}, 1.0).workers[0].capacity == 0.5

    made.disconnect(W0)

    assert made.take({}, 1.0).workers == ()


STOPPED, CRASHED = (Absence.STOPPED, None), (Absence.CRASHED, "crashed once")


def test_a_worker_that_can_be_started_says_for_which_app_and_how_it_ended() -> None:
    made = Roster({W0: 0.25, W1: None}, 1.0, {W0: APP})
    w0, w1 = made.take({}, 1.0, {W0: CRASHED, W1: STOPPED}).workers
    assert (w0.app, w0.state, w0.absence, w0.declared, w0.reason) == (
        None, WorkerState.AWAY, Absence.CRASHED, APP, "crashed once",
    )  # fmt: skip
    assert (w1.absence, w1.declared, w1.reason) == (Absence.STOPPED, None, None)

    w0, w1 = made.take({}, 1.0).workers
    assert (w0.absence, w0.declared, w1.absence) == (None, None, None), "the agent does not know yet"
    assert made.connect(HELLO) is None
    w0, w1 = made.take({}, 1.0, {W1: STOPPED}).workers
    assert (w0.declared, w0.absence) == (APP, None), "it runs, and can be started again"
    assert (w1.declared, w1.absence) == (None, Absence.STOPPED)


def test_a_worker_that_ended_itself_to_protect_its_state_is_away_for_that_reason() -> None:
    made = roster(said(sample()), said(breaches=1))
    made.disconnect(W0)
    why = "it ended itself to protect its state, see trimtab runbook state_breach"
    assert made.take({}, 1.0).workers[0].reason == why
    assert made.take({}, 1.0, {W0: CRASHED}).workers[0].reason == f"{why}; crashed once"
    made.connect(HELLO)
    made.disconnect(W0)
    assert made.take({}, 1.0).workers[0].reason is None, "it ran again"


def test_a_worker_that_runs_another_app_than_declared_is_not_in_the_pool_of_the_declared_one() -> None:
    made = Roster({W0: 0.25}, 1.0, {W0: AppId("orders")})
    differ = "agent.toml declares app orders, its plug-in reports flights"

    assert made.connect(replace(HELLO, reason="topics are missing")) == differ
    row = made.take({}, 1.0).workers[0]
    assert (row.declared, row.reason) == (None, f"topics are missing; {differ}")
    made.disconnect(W0)
    row = made.take({}, 1.0, {W0: STOPPED}).workers[0]
    assert (row.absence, row.declared, row.reason) == (Absence.STOPPED, None, differ)
    assert made.connect(replace(HELLO, app=AppId("orders"))) is None
    made.disconnect(W0)
    row = made.take({}, 1.0, {W0: STOPPED}).workers[0]
    assert (row.declared, row.reason) == ("orders", None)


def test_what_following_took_is_added_up_and_is_no_more_than_the_process_used() -> None:
    parts = [said(cpu_s=0.1, following_s=0.02), said(cpu_s=0.1, following_s=0.03)]
    assert merge(parts, 2.0).following_s == pytest.approx(0.05)
    assert merge([parts[0], said(cpu_s=0.1)], 2.0).following_s is None
    for cpu_s, told in ((0.5, 0.4), (0.3, 0.3), (None, None)):
        roster = Roster({}, 1.0)
        roster.connect(HELLO)
        roster.report(HELLO.worker, said(cpu_s=cpu_s, following_s=0.4))
        [worker] = roster.take({}, 1.0).workers
        assert worker.following_s == told
