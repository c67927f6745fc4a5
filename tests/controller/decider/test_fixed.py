"""Plans are made around workers that are away or take no part, as long as little of the load is unknown."""

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decider.decider_situations import APP, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import known_gaps, owned, snapshot
from tests.narrow import not_none, of_type, only_one
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.observe import Liveness, observe
from trimtab_controller.decider.memory.predictions import Prediction, compare
from trimtab_controller.decider.memory.unknown_load import LastLoads, too_much_unknown
from trimtab_controller.decider.policies.first import drift
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Adopted, Planned, Skip
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.view import DemandView, MeasuredView, SmoothedView
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.answer import Answer
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import KeyGroupWindow, NodeWindow, Snapshot

COUNT = 24
WORKERS = tuple(WorkerId(f"w{place}") for place in range(COUNT))
W0, W1, LAST = WORKERS[0], WORKERS[1], WORKERS[-1]
NEEDS = Requirements()
OWNERS = {kg(place): WORKERS[place // 2] for place in range(2 * COUNT)}
PLACEMENT = placement_of("c", APP, Epoch(1, 1), OWNERS, None)
LAST_ONES = (kg(2 * COUNT - 2), kg(2 * COUNT - 1))


def rows(owners: dict[KeyGroup, WorkerId] = OWNERS, **cpu: float | None) -> list[KeyGroupWindow]:
    """`cpu` by worker, in cores; 0.1 for the others."""
    return [owned(each.partition, name, cpu=cpu.get(name, 0.1)) for each, name in owners.items()]


def nodes(**changed: dict[str, Any] | None) -> list[NodeWindow]:
    """All workers, one of them with these changes; None: nobody reports it."""
    found = {name: node(name, capacity=1.0, standbys=1) for name in WORKERS}
    for name, changes in changed.items():
        if changes is None:
            del found[WorkerId(name)]
        else:
            found[WorkerId(name)] = replace(found[WorkerId(name)], **changes)
    return list(found.values())


def without(worker: WorkerId) -> dict[KeyGroup, WorkerId]:
    return {each: name for each, name in OWNERS.items() if name != worker}


def look(seen: Snapshot, placement: Placement | None = PLACEMENT, liveness: Liveness | None = None) -> MeasuredView:
    liveness = liveness or Liveness()
    return of_type(
        MeasuredView, observe(seen, APP, placement=placement, draining=frozenset(), liveness=liveness, needs=NEEDS)
    )


@pytest.mark.parametrize(
    ("changes", "reported", "cpu", "reason", "stale"),
    [
        (None, without(LAST), {}, SkipReason.WORKER_MISSING, 2),
        ({"state": WorkerState.RECOVERING}, OWNERS, {}, SkipReason.WORKER_NOT_RUNNING, 2),
        ({"state": WorkerState.REBALANCING}, without(LAST), {}, SkipReason.WORKER_NOT_RUNNING, 2),
        ({"steering": False}, OWNERS, {}, SkipReason.WORKER_NOT_STEERING, 0),
        ({"complete": False}, OWNERS, {}, SkipReason.WORKER_INCOMPLETE, 2),
        ({}, OWNERS, {LAST: None}, SkipReason.LOAD_UNKNOWN, 2),
        ({"unknown": "broker 2 at kafka-2:9092 does not answer"}, OWNERS, {}, SkipReason.LOAD_UNKNOWN, 0),
    ],
)
def test_one_worker_costs_its_own_key_groups_only(
    changes: dict[str, Any] | None,
    reported: dict[KeyGroup, WorkerId],
    cpu: dict[str, None],
    reason: SkipReason,
    stale: int,
) -> None:
    view = look(snapshot(nodes(**{LAST: changes}), rows(reported, **cpu)))

    assert {each.id: each.reason for each in view.fixed} == {LAST: reason}
    assert [worker.id for worker in view.workers] == sorted(set(WORKERS) - {LAST})
    assert view.owners == without(LAST)
    assert [(row.key_group, row.owner) for row in view.kept] == [(each, LAST) for each in LAST_ONES]
    assert view.sizes == {kg(0).operator: 2 * COUNT}
    assert drift(view, PLACEMENT) is None, "its rows stay in the placement"
    gaps = known_gaps(view, LastLoads.of(view))
    assert (gaps.stale, gaps.share) == (stale, pytest.approx(stale / (2 * COUNT)))
    assert too_much_unknown(view, gaps, NEEDS.max_unknown) is None


def test_what_standbys_took_over_returns_with_the_worker_until_that_counts_as_gone() -> None:
    taken = {**OWNERS, **dict.fromkeys(LAST_ONES, W0)}
    liveness = Liveness()
    liveness.observe(snapshot(nodes(), rows()), WORKERS)
    seen = snapshot(nodes(**{LAST: None}), rows(taken))
    liveness.observe(seen, WORKERS)

    view = look(seen, liveness=liveness)
    assert {row.owner for row in view.kept} == {LAST}
    assert known_gaps(view, LastLoads.of(view)).stale == 0, "the standby measures them"
    assert drift(view, PLACEMENT) is None

    later = replace(seen, start_ms=1_070_000, end_ms=1_080_000)
    liveness.observe(later, WORKERS)
    view = look(later, liveness=liveness)
    assert (view.fixed, len(view.kept)) == ((), 0)
    assert drift(view, PLACEMENT) == Adopted(
        app=APP,
        owners=taken,
        detail=f"2 key groups have other owners than placed, such as {LAST_ONES[0]}: the placement follows the reports",
    )


def test_a_worker_whose_host_is_silent_for_long_is_still_fixed_as_long_as_nobody_else_has_its_key_groups() -> None:
    seen, liveness = snapshot(nodes(**{LAST: None}), rows(without(LAST))), Liveness()
    liveness.observe(snapshot(nodes(), rows()), WORKERS)
    liveness.observe(seen, WORKERS)
    later = replace(seen, start_ms=1_290_000, end_ms=1_300_000)
    liveness.observe(later, WORKERS)

    view = look(later, liveness=liveness)

    assert [(each.id, each.reason) for each in view.fixed] == [(LAST, SkipReason.WORKER_MISSING)]
    assert drift(view, PLACEMENT) is None


@pytest.mark.parametrize("reported", [without(LAST), {**OWNERS, **dict.fromkeys(LAST_ONES, W0)}])
def test_an_owner_that_runs_another_app_now_is_fixed_until_somebody_of_this_app_has_its_key_groups(
    reported: dict[KeyGroup, WorkerId],
) -> None:
    """As `faust.App(version=2)` does with one worker after the other; w0 is started with it in this window, too."""
    other = {"app": AppId("orders-v2")}
    first = {each: name for each, name in reported.items() if name != W0 or each in LAST_ONES}
    liveness = Liveness()
    liveness.observe(snapshot(nodes(), rows()), WORKERS)
    seen = snapshot(nodes(**{LAST: other, W0: other}), rows(first))
    liveness.observe(seen, WORKERS)

    view = look(seen, liveness=liveness)

    there = {worker.id for worker in view.all_workers}
    assert {row.owner for row in view.kept} == {LAST, W0}
    assert there >= {row.owner for row in (*view.kept, *view.owned)}, "standbys are chosen by the owners' hosts"
    assert drift(view, PLACEMENT) is None


def test_the_first_placement_waits_for_every_worker_but_not_for_one_that_only_reports() -> None:
    restarting = snapshot(nodes(**{LAST: {"state": WorkerState.RECOVERING}}), rows(without(LAST)))
    found = of_type(
        NotReady, observe(restarting, APP, placement=None, draining=frozenset(), liveness=Liveness(), needs=NEEDS)
    )
    assert found.reason is SkipReason.WORKER_NOT_RUNNING

    view = look(snapshot(nodes(**{LAST: {"steering": False}}), rows()), None)
    adopted = not_none(drift(view, None))
    assert adopted.owners == OWNERS


# ---- how much is unknown


def test_too_much_unknown_load_names_the_workers_and_how_much_it_is() -> None:
    changed = {WORKERS[-2]: {"complete": False}, LAST: None}
    view = look(snapshot(nodes(**changed), rows(without(LAST))))  # type: ignore[arg-type]

    found = too_much_unknown(view, known_gaps(view, LastLoads.of(view)), NEEDS.max_unknown)

    assert found == NotReady(
        reason=SkipReason.WORKER_INCOMPLETE,
        detail=(
            "workers that reported only in part: w22; workers that own key groups but are away: w23; "
            "8% of the load is unknown, at most 5% may be"
        ),
        app=APP,
    )


def test_the_last_known_load_counts_until_it_is_too_old_then_the_mean_of_the_operator() -> None:
    whole = look(snapshot(nodes(), rows(w23=0.4)))
    last = LastLoads.of(whole)
    away = look(replace(snapshot(nodes(**{LAST: None}), rows(without(LAST))), start_ms=1_010_000, end_ms=1_020_000))

    known = known_gaps(away, last.then(away))
    assert known.share == pytest.approx(2 * 0.4 / (2 * 0.4 + 46 * 0.1))
    assert known.of_workers == {LAST: known.share}

    old = known_gaps(away, last.then(away).since(1_015.0))
    assert old.share == pytest.approx(2 / 48)


def test_where_nothing_has_load_the_number_of_key_groups_counts() -> None:
    view = look(snapshot(nodes(**{LAST: None}), rows(without(LAST), **dict.fromkeys(WORKERS, 0.0))))
    assert known_gaps(view, LastLoads.of(view)).share == pytest.approx(2 / 48)


# ---- the decider


def decided(actions: list[Action]) -> list[Any]:
    return [action.decision for action in actions if isinstance(action, Decided)]


def window(number: int, seen: Snapshot) -> SnapshotArrived:
    start_ms = 1_000_000 + 10_000 * number
    return SnapshotArrived(snapshot=replace(seen, start_ms=start_ms, end_ms=start_ms + 10_000))


def a_decider() -> Decider:
    settings = Settings(min_windows=1, min_interval_s=0.0)
    execution = Execution(generation=1, number=1, placements={APP: PLACEMENT})
    return Decider(settings, NEEDS, execution, acting=True)


def test_a_plan_is_made_around_a_worker_that_is_away() -> None:
    decider = a_decider()
    decider.on_event(1010.0, window(0, snapshot(nodes(), rows())))
    heavy = rows(without(LAST), w0=0.4)

    solve = only_one(Solve, decider.on_event(1020.0, window(1, snapshot(nodes(**{LAST: None}), heavy))))
    assert LAST not in {worker.id for worker in solve.view.workers}
    found = answer(question_of(solve.view, Settings(), 0.5))
    plan = only_one(Planned, decided(decider.on_event(1020.5, SolverAnswered(answer=found))))
    assert plan.plan.detail.endswith(f"around {LAST}")
    assert LAST not in {end for move in plan.plan.moves for end in (move.source, move.target)}
    assert decider.known.gaps[APP].stale == 2


def test_a_worker_that_is_away_when_the_solver_answers_is_not_planned_with() -> None:
    decider = a_decider()
    asking_for_none = [replace(each, standbys=None) for each in nodes()]
    solve = only_one(Solve, decider.on_event(1010.0, window(0, snapshot(asking_for_none, rows(w0=0.4)))))
    found = of_type(Answer, answer(question_of(solve.view, Settings(), 0.5)))
    target = solve.view.workers[found.moves[0][1]].id
    left = [each for each in asking_for_none if each.worker != target]
    assert decider.on_event(1020.0, window(1, snapshot(left, rows(without(target), w0=0.4)))) == []

    skip = only_one(Skip, decided(decider.on_event(1020.5, SolverAnswered(answer=found))))
    assert skip.reason is SkipReason.WORKER_MISSING
    assert target in skip.detail


def test_the_history_goes_on_while_workers_come_and_go() -> None:
    decider = a_decider()
    for number in range(6):
        away = WORKERS[number + 3]
        decider.on_event(1010.0 + 10 * number, window(number, snapshot(nodes(**{away: None}), rows(without(away)))))
    back = snapshot(nodes(), rows(w8=0.12))
    decider.on_event(1070.0, window(6, back))

    view = of_type(SmoothedView, decider.known.views[APP])
    loads = {row.key_group: row.load for row in view.key_groups}
    assert loads[kg(16)] == pytest.approx(11.0), "smoothed with what was known before w8 was away"
    assert decider.known.evaluations[APP].noise is not None


def test_standbys_stay_on_a_worker_that_restarts_and_it_gets_no_more() -> None:
    placed = PLACEMENT.changed(
        Epoch(1, 2),
        {each: (name, LAST if name != LAST else W0) for each, name in OWNERS.items() if name != W1},
    )
    decider = a_decider()
    decider.on_event(1009.0, ExecutionChanged(execution=Execution(generation=1, number=2, placements={APP: placed})))
    seen = snapshot(nodes(**{LAST: {"state": WorkerState.RECOVERING}}), rows())

    (decision,) = decided(decider.on_event(1010.0, window(0, seen)))

    changed = decision.rows
    assert set(changed) == {each for each, name in OWNERS.items() if name == W1}, "no other standby is given up"
    assert all(LAST not in row for row in changed.values())


# ---- the promise of a round


def test_a_round_is_compared_on_the_workers_that_were_measured_both_times() -> None:
    before = DemandView.of(look(snapshot(nodes(**{LAST: None}), rows(without(LAST), w0=0.4))))
    moved = {**OWNERS, kg(0): W1}
    seen = [replace(row, cpu=0.4) if row.key_group == kg(0) else row for row in rows(moved, w0=0.4)]
    after = look(snapshot(nodes(w5={"complete": False}), seen), placement_of("c", APP, Epoch(1, 2), moved, None))

    found = compare(Prediction(decided_at=1.0, view=before), DemandView.of(after), load_distance=1.0, min_gain=0.5)

    assert found.incomparable is None
    assert found.missed == ()
    loads = [10.0 * 2] * (COUNT - 4) + [40.0, 60.0]
    mean = sum(loads) / len(loads)
    assert found.load_distance == pytest.approx(60.0 - mean)
