"""What one move would do: compared with evaluating the whole view after it, move by move."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.controller.decider.decider_situations import a_handover, a_round, a_worker, owned, plannable
from tests.controller.decider.hosted_job import APP, kg
from trimtab_controller.decider.memory.evaluate import evaluate
from trimtab_controller.decider.memory.failures import FIRST_S, LONGEST_S, LeftAlone
from trimtab_controller.decider.policies.explain import SingleMoves, why_of
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.resources import filled_by
from trimtab_controller.decider.window.view import UNLIMITED, PlannableView, Room, Worker
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.plan import MoveReason, PlanReason, PlanWhy
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

W = [WorkerId(f"w{n}") for n in range(5)]


def a_view(seed: int, *, drained: int = 0, rooms: dict[HostId, Room] | None = None) -> PlannableView:
    """Five workers on three hosts, 30 key groups."""
    chosen = random.Random(seed)
    workers = [
        a_worker(name, f"h{n // 2}", chosen.choice((0.5, 1.0, 2.0)), draining=n < drained) for n, name in enumerate(W)
    ]
    rows = [owned(kg(n), chosen.choice(W), chosen.uniform(0.0, 20.0), chosen.randint(1, 9)) for n in range(30)]
    return plannable(workers, rows, rooms=rooms or {})


def moved(view: PlannableView, moves: dict[int, WorkerId]) -> PlannableView:
    rows = [replace(row, owner=moves.get(place, row.owner)) for place, row in enumerate(view.owned)]
    return replace(view, key_groups=rows)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("drained", [0, 2])
def test_the_load_distance_after_each_single_move_is_that_of_the_whole_view(seed: int, drained: int) -> None:
    view = a_view(seed, drained=drained)
    found = SingleMoves(view)
    assert found.load_distance == pytest.approx(evaluate(view).load_distance)
    assert found.loads == pytest.approx(dict(evaluate(view).worker_loads))
    for row in range(30):
        distances = found.distances(np.array([row]))[0]
        for target, name in enumerate(W):
            after = evaluate(moved(view, {row: name}))
            assert distances[target] == pytest.approx(after.load_distance)
            assert found.load_after(row, target) == pytest.approx(after.worker_loads[name])


def test_moves_that_a_plan_makes_already_count() -> None:
    view = a_view(3)
    moves = {0: W[4], 7: W[2]}
    found = SingleMoves(view, moves)
    assert found.load_distance == pytest.approx(evaluate(moved(view, moves)).load_distance)


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_is_the_one_by_which_a_plan_would_be_refused(seed: int) -> None:
    view = a_view(seed)
    used = {each.host: each.before for each in filled_by(replace(view, rooms=dict.fromkeys(hosts(view), UNLIMITED)), {})
            if each.resource == "memory"}  # fmt: skip
    full = {host: replace(UNLIMITED, memory=amount + 4.0, disk=amount + 6.0) for host, amount in used.items()}
    view = replace(view, rooms=full)
    found, forbidden = SingleMoves(view), 0
    for row in range(30):
        for target, name in enumerate(W):
            if view.owned[row].owner == name:
                continue
            over = {each.resource for each in filled_by(view, {row: name}) if each.overfills}
            limit = found.limit(row, target)
            assert (limit.resource if limit else None) in (over or {None})
            forbidden += limit is not None
    assert 0 < forbidden < 30 * 4


def hosts(view: PlannableView) -> list[HostId]:
    return sorted({worker.host for worker in view.workers})


def explained(view: PlannableView, moves: dict[int, WorkerId], reason: PlanReason) -> PlanWhy:
    return why_of(view, moves, reason, filled_by(view, moves))


def test_each_move_has_its_reason() -> None:
    workers = tuple(Worker(id=name, host=HostId(name), capacity=1.0, draining=name == W[3]) for name in W[:4])
    loads = {W[0]: (30.0, 30.0), W[1]: (20.0,), W[2]: (5.0,), W[3]: (5.0,)}
    rows = [
        Owned(key_group=kg(n), owner=owner, load=load, state_bytes=1)
        for n, (owner, load) in enumerate((owner, load) for owner, each in loads.items() for load in each)
    ]
    view = PlannableView(app=APP, start_s=0.0, end_s=10.0, workers=workers, key_groups=rows, flows={})
    moves = {0: W[1], 2: W[2], 3: W[0], 4: W[2]}
    found = explained(view, moves, PlanReason.LOAD_DISTANCE)
    assert found.reasons == (MoveReason.OVER_MEAN, MoveReason.UNDER_MEAN, MoveReason.MAKES_ROOM, MoveReason.DRAIN)
    assert found.loads == (30.0, 20.0, 5.0, 5.0)
    assert dict(found.before) == pytest.approx({W[0]: 60.0, W[1]: 20.0, W[2]: 5.0, W[3]: 5.0})
    assert dict(found.after) == pytest.approx({W[0]: 35.0, W[1]: 30.0, W[2]: 25.0, W[3]: 0.0})
    assert found.mean_load == pytest.approx(30.0)
    first = explained(view, {0: W[2]}, PlanReason.FIRST)
    assert first.reasons == (MoveReason.FIRST,)
    together = explained(view, {0: W[2]}, PlanReason.COLLOCATION)
    assert together.reasons == (MoveReason.COLLOCATION,)
    room = {HostId(W[0]): replace(UNLIMITED, cpu=50.0)}
    full = explained(replace(view, rooms=room), {0: W[2]}, PlanReason.LOAD_DISTANCE)
    assert full.reasons == (MoveReason.HOST_FULL,)


# ---- a key group whose hand-over has failed because of itself is left alone, longer each time, and status says why


SHOP, T0 = AppId("shop"), 1000.0
ONE, OTHER = (KeyGroup(SHOP, OperatorId("sums"), partition) for partition in (1, 2))
WHY = "w0 on h0: drain_timeout (orders/1 offset 187 is in work for 34 s, and nobody knows for how long (limit 10 s))"


def ended(
    number: int,
    *key_groups: KeyGroup,
    phase: HandoverPhase = HandoverPhase.FAILED,
    refusal: Refusal | None = Refusal.DRAIN_TIMEOUT,
    lost: bool = False,
) -> Execution:
    """An execution whose last round had one hand-over, which has ended."""
    plan = f"1.{number}"
    handover = a_handover(*(key_groups or (ONE,)), id=f"{plan}-0", phase=phase, detail=WHY, refusal=refusal)
    return Execution(generation=1, rounds={SHOP: a_round(None, handover, plan=plan, app=SHOP, lost=lost)})


def test_each_failure_in_a_row_doubles_the_time_and_is_counted_once() -> None:
    left, now, seconds = LeftAlone(), T0, []
    for number in range(1, 10):
        for _ in range(3):  # the round stays in the state until the next one begins
            left.observe(now, ended(number))
        found = FIRST_S
        while ONE in left.pinned(now + found, SHOP):
            found += FIRST_S
        seconds.append(found)
        now += found

    assert seconds == [FIRST_S * 2**n for n in range(7)] + [LONGEST_S] * 2


def test_its_reason_is_told_and_a_hand_over_that_is_done_ends_it() -> None:
    left = LeftAlone()
    left.observe(T0, ended(1))
    assert left.describe(T0 + 10.0, SHOP) == f"left alone after a hand-over that failed: {ONE} for 20 s, {WHY}"

    left.observe(T0 + 11.0, ended(2, phase=HandoverPhase.DONE, refusal=None))
    assert (left.pinned(T0 + 11.0, SHOP), left.describe(T0 + 11.0, SHOP)) == (frozenset(), "")
    left.observe(T0 + 12.0, ended(3))
    assert left.describe(T0 + 12.0, SHOP).startswith(f"left alone after a hand-over that failed: {ONE} for 30 s"), (
        "the first"
    )


def test_those_that_failed_together_are_tried_one_after_the_other() -> None:
    left = LeftAlone()
    left.observe(T0, ended(1, ONE, OTHER))

    assert [left.pinned(T0 + FIRST_S * n - 1.0, SHOP) for n in (1, 2, 3)] == [{ONE, OTHER}, {OTHER}, frozenset()]


@pytest.mark.parametrize("refusal", [None, Refusal.GENERATION, Refusal.WORKER_AWAY, Refusal.UNSIGNED])
def test_what_is_not_because_of_the_key_group_holds_it_up_no_longer(refusal: Refusal | None) -> None:
    left = LeftAlone()
    left.observe(T0, ended(1, refusal=refusal))
    left.observe(T0, replace(ended(2, lost=True)))

    assert left.pinned(T0, SHOP) == frozenset()
