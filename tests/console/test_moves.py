"""What a plan moves from worker to worker, by its journal entry and by its events."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import APP, OPERATORS, Fleet, source_of, watching
from tests.console.told import PLAN, events, tell
from trimtab_console.plans import by_worker
from trimtab_console.server import application
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_protocol.console_documents import MovesByWorker, PlanExplanation, PlannedMove, WorkerMoves
from trimtab_protocol.messages.names import KeyGroup

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
        moves_total=total or len(moves), loads=(), next=None,
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
    client = TestClient(application(source_of(watch)), base_url="http://localhost")
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
