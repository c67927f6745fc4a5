"""What a plan moves from worker to worker, by its journal entry and by its events."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.console.fleet import APP, NOW, OPERATORS, TOPICS, Fleet, watching
from tests.console.setup import client_of
from tests.console.setup import get as answer
from tests.console.told import PLAN, events, tell
from tests.kafka_record import Record
from trimtab_console.flows import MAX_FLOWS, flows_of
from trimtab_console.plans import by_worker
from trimtab_console.watch import Watch
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.kafka.chunks import split
from trimtab_protocol.console_documents import Flow, MovesByWorker, PlanExplanation, PlannedMove, WorkerMoves
from trimtab_protocol.messages.key_group_table import KeyGroupTable
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId
from trimtab_protocol.messages.snapshot import PairWindow, Snapshot

FLEET = Fleet(workers=4, key_groups=64)
W = [FLEET.worker(at) for at in range(4)]


def planned(at: int, source: str, target: str, load_pct: float | None = 5.0, outcome: str | None = None) -> PlannedMove:
    return PlannedMove(
        key_group=str(KeyGroup(APP, OPERATORS[0], at)), source=source, target=target, why=None, reason=None, warm=None,
        load_pct=load_pct, outcome=outcome, pause_s=None,
    )  # fmt: skip


def told(moves: Sequence[PlannedMove], total: int | None = None) -> PlanExplanation:
    return PlanExplanation(
        plan="3.15", app=APP, text="", mean_load=None, planned=None, measured=None, moves=moves,
        moves_total=total or len(moves), loads=(),
    )  # fmt: skip


def journalled() -> Round:
    """Three hand-overs of orders-1: one to orders-3 that is done, two to orders-2."""
    row = FLEET.journal().execution.rounds[APP]
    first, second, third = row.handovers
    return replace(row, handovers=(first, replace(second, phase=HandoverPhase.DONE), third))


def moves(source: str | None, target: str | None, key_groups: int, **different: Any) -> WorkerMoves:
    default: dict[str, Any] = {"load_pct": None, "unknown_loads": 0, "phases": {}}
    return WorkerMoves(source=source, target=target, key_groups=key_groups, **{**default, **different})


def test_the_journal_has_the_phases_and_the_events_the_loads() -> None:
    found = by_worker("3.15", journalled(), told([planned(0, W[1], W[2], 4.0), planned(1, W[1], W[3], 2.5)]), 12)
    assert found == MovesByWorker(
        plan="3.15", key_groups=3, key_groups_total=3, sources_total=1, targets_total=2,
        items=[
            moves(W[1], W[2], 2, load_pct=4.0, unknown_loads=1, phases={"waiting": 2}),
            moves(W[1], W[3], 1, load_pct=2.5, phases={"done": 1}),
        ],
    )  # fmt: skip


def test_without_events_loads_are_unknown_and_never_zero() -> None:
    found = by_worker("3.15", journalled(), None, 12)
    assert found is not None
    assert [(row.load_pct, row.unknown_loads) for row in found.items] == [(None, 2), (None, 1)]


def test_without_a_journal_entry_the_events_say_what_came_of_the_moves() -> None:
    rows = [planned(0, W[0], W[1], outcome="done"), planned(1, W[0], W[1], outcome="failed"), planned(2, W[0], W[1])]
    found = by_worker("3.15", None, told(rows, total=40), 12)
    assert found is not None
    assert (found.key_groups, found.key_groups_total) == (3, 40)
    assert found.items == [moves(W[0], W[1], 3, load_pct=15.0, phases={"done": 1, "failed": 1, "planned": 1})]


def test_workers_beyond_the_largest_count_together() -> None:
    rows = [planned(at, f"s{at % 5}", f"t{at % 7}") for at in range(35)] + [planned(35, "s4", "t6")]
    found = by_worker("3.15", None, told(rows), 1)
    assert found is not None
    assert (found.sources_total, found.targets_total) == (5, 7)
    assert found.items == [
        moves(None, None, 24, load_pct=120.0, phases={"planned": 24}),
        moves("s4", None, 6, load_pct=30.0, phases={"planned": 6}),
        moves(None, "t6", 4, load_pct=20.0, phases={"planned": 4}),
        moves("s4", "t6", 2, load_pct=10.0, phases={"planned": 2}),
    ]
    assert sum(row.key_groups for row in found.items) == len(rows)


def test_of_a_plan_that_nobody_names_nothing_is_known() -> None:
    assert by_worker("9.9", None, None, 12) is None


def test_the_api_answers_by_journal_or_events() -> None:
    watch = watching(FLEET)
    tell(watch, FLEET)
    client = client_of(watch)
    in_flight = client.get("/api/v1/plans/3.15/moves/by-worker").json()
    assert [(row["source"], row["target"], row["phases"]) for row in in_flight["items"]] == [
        (W[1], W[2], {"waiting": 2}), (W[1], W[3], {"waiting": 1}),
    ]  # fmt: skip
    past = client.get(f"/api/v1/plans/{PLAN}/moves/by-worker").json()
    (begun,) = [event for event in events(FLEET) if event.plan == PLAN and event.phase == "begun"]
    assert [(row["source"], row["target"], row["load_pct"], row["phases"]) for row in past["items"]] == [
        (move.source, move.target, move.load_pct, {outcome: 1})
        for move, outcome in zip(begun.moves, ("done", "failed"), strict=True)
    ]
    assert client.get("/api/v1/plans/9.9/moves/by-worker").status_code == 404
    assert client.get(f"/api/v1/plans/{PLAN}/moves/by-worker?most=0").status_code == 422


@pytest.mark.parametrize("most", [1, 2, 12])
def test_named_workers_are_those_with_the_most_key_groups(most: int) -> None:
    rows = [planned(at, W[0], target) for at, target in enumerate((W[1], W[1], W[2]))]
    found = by_worker("3.15", None, told(rows), most)
    assert found is not None
    assert [row.target for row in found.items] == ([W[1], None] if most == 1 else [W[1], W[2]])


# ---- what operators send to each other: sums over the pairs of a window, and what is unknown of them


A, B = OPERATORS
"""Partition p of both is on worker p % 4."""


def pair(
    source: int,
    target: int,
    tuples_s: float,
    direct_s: float | None = 0.0,
    ends: Sequence[str] = (A, B),
    app: str = APP,
) -> PairWindow:
    names = [OperatorId(name) for name in ends]
    return PairWindow(
        source=KeyGroup(AppId(app), names[0], source), target=KeyGroup(AppId(app), names[1], target),
        tuples_s=tuples_s, bytes_s=10.0 * tuples_s, direct_s=direct_s,
    )  # fmt: skip


def window(*pairs: PairWindow) -> Snapshot:
    return replace(FLEET.snapshot(), pairs=pairs)


def flow(**different: Any) -> Flow:
    default = {"source": A, "target": B, "pairs": 2, "tuples_s": 40.0, "bytes_s": 400.0}
    return Flow(**{**default, "collocation": 0.75, "local_sends": 0.5, **different})


def test_pairs_of_two_operators_are_one_flow() -> None:
    found = flows_of(window(pair(0, 4, 30.0, 20.0), pair(1, 2, 10.0)))
    assert (found[APP].largest, found[APP].total, len(found)) == ((flow(),), 1, 1)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ((pair(0, 4, 30.0, None), pair(1, 2, 10.0, 10.0)), {"local_sends": None}),
        ((pair(0, 4, 30.0, 20.0), pair(1, 400, 10.0)), {"collocation": 1.0}),
        ((pair(400, 4, 30.0, 20.0), pair(1, 400, 10.0)), {"collocation": None}),
        (
            (pair(0, 0, 0.0), pair(1, 1, 0.0)),
            {"tuples_s": 0.0, "bytes_s": 0.0, "collocation": None, "local_sends": None},
        ),
        ((pair(0, 0, 30.0, 40.0), pair(1, 1, 10.0, 10.0)), {"collocation": 1.0, "local_sends": 1.0}),
    ],
    ids=["a plug-in that does not tell", "one owner unknown", "all owners unknown", "nothing sent", "rounding"],
)
def test_what_is_unknown_is_left_out_or_null(pairs: Sequence[PairWindow], expected: dict[str, Any]) -> None:
    assert flows_of(window(*pairs))[APP].largest == (flow(**expected),)


def test_an_operator_of_which_no_key_group_is_known_has_flows_without_places() -> None:
    (found,) = flows_of(window(pair(0, 0, 40.0, ends=("stateless", B))))[APP].largest
    assert found == flow(source="stateless", pairs=1, collocation=None, local_sends=0.0)


def test_the_largest_flows_come_first_and_apps_are_apart() -> None:
    rows = [pair(0, 0, 10.0), pair(0, 0, 20.0, ends=(B, A)), pair(1, 1, 15.0), pair(2, 2, 5.0, app="bills")]
    found = flows_of(window(*rows))
    assert [(row.source, row.target, row.tuples_s) for row in found[APP].largest] == [(A, B, 25.0), (B, A, 20.0)]
    assert [row.tuples_s for row in found[AppId("bills")].largest] == [5.0]


def test_no_more_than_the_largest_flows_are_kept() -> None:
    found = flows_of(window(*(pair(0, 0, float(at), ends=(A, f"o{at}")) for at in range(MAX_FLOWS + 5))))[APP]
    assert (len(found.largest), found.total) == (MAX_FLOWS, MAX_FLOWS + 5)
    assert (found.largest[0].tuples_s, found.largest[-1].tuples_s) == (MAX_FLOWS + 4.0, 5.0)


def test_sums_over_many_pairs_are_those_of_a_plain_sum() -> None:
    snapshot = Fleet(workers=6, key_groups=300, operators=tuple(OperatorId(f"o{at}") for at in range(5))).snapshot()
    owners = {row.key_group: row.worker for row in snapshot.key_groups}
    found = {(row.source, row.target): row for row in flows_of(snapshot)[APP].largest}
    assert sorted(found) == [("o0", "o1"), ("o0", "o2"), ("o1", "o2"), ("o2", "o3"), ("o3", "o4")]
    for (source, target), row in found.items():
        own = [each for each in snapshot.pairs if (each.source.operator, each.target.operator) == (source, target)]
        total = sum(each.tuples_s for each in own)
        stays = sum(each.tuples_s for each in own if owners[each.source] == owners[each.target])
        assert (row.pairs, row.tuples_s, row.collocation) == (60, pytest.approx(total), pytest.approx(stays / total))
        assert row.local_sends == pytest.approx(sum(each.direct_s or 0.0 for each in own) / total)


def get(watch: Watch, path: str) -> Any:
    return answer(client_of(watch), path)


def test_the_api_has_the_flows_of_the_last_window_and_keeps_no_pairs() -> None:
    watch = watching(FLEET)
    expected = flows_of(FLEET.snapshot())[APP].largest[0]
    assert get(watch, f"apps/{APP}/flows") == {
        "items": [{name: getattr(expected, name) for name in Flow.__dataclass_fields__}], "total": 1, "offset": 0,
    }  # fmt: skip
    assert watch.known.snapshot is not None
    assert watch.known.snapshot.pairs == ()
    assert get(watch, "apps/none/flows") == {"items": [], "total": 0, "offset": 0}
    later = replace(window(pair(0, 0, 7.0)), end_ms=int(NOW * 1000), published_ms=int(NOW * 1000))
    for each in split(later):
        watch.take(Record(TOPICS.snapshots, each.payload, b"prod", each.headers))
    assert [row["tuples_s"] for row in get(watch, f"apps/{APP}/flows")["items"]] == [7.0]
    watch.restart()
    assert watch.known.flows == {}


def test_a_partition_without_samples_between_others_has_no_owner() -> None:
    block = FLEET.snapshot().blocks[0]
    holes = replace(block, partition=array("q", [2 * place for place in block.partition]))
    rows = (pair(0, 8, 30.0, ends=(A, A)), pair(0, 1, 10.0, ends=(A, A)))
    (found,) = flows_of(replace(FLEET.snapshot(), key_groups=KeyGroupTable([holes]), pairs=rows))[APP].largest
    assert found.collocation == 1.0
