"""When standbys are placed: with an adoption, with a plan, and when nothing else is to be done."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_round, kg
from tests.controller.decider.deciders import (
    BALANCED,
    ON_W0,
    PAUSE,
    answer,
    decider,
    execution,
    only,
    window,
    with_all,
)
from tests.narrow import of_type
from trimtab_controller.decider.events import ExecutionChanged, RestoresLearned, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.standbys import NAMED_S, ROUND, ROUND_INTERVAL_S
from trimtab_controller.decider.values.decision import Adopted, Skip, StandbysPlaced, describe, names_of
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_models.instances.scheduling import AffineCost
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

EACH = int(ROUND.worker_changes)
WARM = {kg(0): (W0, W1), kg(1): (W1, W0)}


def asking(arrived: SnapshotArrived, standbys: int | None = 1) -> SnapshotArrived:
    """The window with what the workers say that their app asks for."""
    return with_all(arrived, standbys=standbys)


def published(made: Decider, present: Execution, rows: dict[KeyGroup, Owners]) -> Execution:
    """What the execution does with the rows."""
    placement = present.placements[APP].changed(Epoch(1, present.number + 1), rows)
    after = replace(present, number=present.number + 1, placements={APP: placement})
    made.on_event(0.0, ExecutionChanged(execution=after))
    return after


def test_the_first_placement_names_standbys() -> None:
    decision = only(decider(execution(None)).on_event(1011.0, asking(window(BALANCED), 1)))
    detail = "first placement: 2 key groups with their present owners; 2 new standbys"
    assert decision == Adopted(app=APP, owners=BALANCED, detail=detail, standbys=WARM)


def test_standbys_that_are_missing_are_placed_when_nothing_else_is_to_be_done() -> None:
    present = execution(BALANCED)
    made = decider(present)
    decision = only(made.on_event(1011.0, asking(window(BALANCED), 1)))
    assert decision == StandbysPlaced(app=APP, rows=WARM, detail="2 new standbys")
    assert describe(decision) == "app: 2 new standbys"
    assert names_of(decision) == ("standbys", "standbys")
    assert made.known.missing_standbys == {APP: 2}
    published(made, present, WARM)
    calm = of_type(Skip, only(made.on_event(1031.0, asking(window(BALANCED, 1030.0), 1))))
    assert (calm.reason, made.known.missing_standbys) == (SkipReason.INSIDE_BAND, {APP: 0})


def test_the_loop_says_when_all_are_warm_by_what_restores_cost_and_what_waits() -> None:
    arrived = asking(window(BALANCED), 1)
    rows = tuple(replace(row, state_bytes=100_000_000) for row in arrived.snapshot.key_groups)
    large = SnapshotArrived(snapshot=replace(arrived.snapshot, key_groups=rows))
    host, other = HostId("h0"), AppId("other")
    busy = {other: [(host, 100_000_000)]}
    for speed, waiting, told in ((10e6, {}, (10, 10)), (20e6, {}, (5, 5)), (10e6, busy, (21, 15))):
        made = decider(execution(BALANCED))
        learned = LearnedRestores(bytes_per_s=speed, shared=AffineCost(a=1.0, b=0.0), most_at_once=1, waiting=waiting)
        made.on_event(1000.0, RestoresLearned(learned=learned))
        decision = of_type(StandbysPlaced, only(made.on_event(1011.0, large)))
        assert decision.detail == "2 new standbys, all warm after about {} s, bound {} s".format(*told)
    mine = LearnedRestores(waiting={APP: [(host, 1)]})
    made.on_event(1012.0, RestoresLearned(learned=mine))
    assert made._situation.restores_of(APP).running == {}, "new rows take the place of those that wait"


def test_the_next_round_waits_until_the_last_one_is_named_but_not_for_ever() -> None:
    present = execution(BALANCED)
    made = decider(present)
    first = of_type(StandbysPlaced, only(made.on_event(1011.0, asking(window(BALANCED), 1))))
    assert first.lacking == {kg(0): {HostId("h1"): 1000}, kg(1): {HostId("h0"): 1000}}
    published(made, present, {kg(0): WARM[kg(0)]})
    for end_s in (1030.0, 1060.0):
        waits = only(made.on_event(end_s + 1.0, asking(window(BALANCED, end_s), 1)))
        assert isinstance(waits, Skip), "the other one may still wait for a slot of its host"
    again = of_type(StandbysPlaced, only(made.on_event(1011.0 + NAMED_S, asking(window(BALANCED, 1070.0), 1))))
    assert (again.rows, again.lacking) == ({kg(1): WARM[kg(1)]}, {kg(1): {HostId("h0"): 1000}})
    assert made._situation.memory.standbys.promised(1011.0 + NAMED_S) == {HostId("h1"): 1000.0, HostId("h0"): 1000.0}, (
        "not twice"
    )


@pytest.mark.parametrize("asked", [None, 0])
def test_where_none_are_asked_for_or_nobody_says_it_nothing_is_done(asked: int | None) -> None:
    made = decider(execution(BALANCED))
    of_type(Skip, only(made.on_event(1011.0, asking(window(BALANCED), asked))))
    assert made.known.missing_standbys == ({} if asked is None else {APP: 0})


def test_nothing_is_placed_while_it_must_not_be() -> None:
    in_flight = execution(BALANCED, rounds={APP: a_round(None)})
    for made, reason in (
        (decider(in_flight), SkipReason.PLAN_IN_FLIGHT),
        (decider(execution(BALANCED), PAUSE), SkipReason.PAUSED),
        (decider(execution(BALANCED), acting=False), SkipReason.INSIDE_BAND),
    ):
        decision = of_type(Skip, only(made.on_event(1011.0, asking(window(BALANCED), 1))))
        assert decision.reason is reason
    unready = asking(window(BALANCED, workers=(W0,)), 1)
    decision = of_type(Skip, only(decider(execution(BALANCED)).on_event(1011.0, unready)))
    assert decision.reason is SkipReason.HOSTS_LOST


def test_a_plan_that_was_looked_for_in_vain_gives_its_place_to_standbys() -> None:
    present = execution(ON_W0)
    made = decider(present)
    made.on_event(1011.0, asking(window(ON_W0), 1))
    decision = of_type(StandbysPlaced, only(made.on_event(1011.5, answer())))
    published(made, present, dict(decision.rows))
    made.on_event(1031.0, asking(window(ON_W0, 1030.0), 1))
    assert of_type(Skip, only(made.on_event(1031.5, answer()))).reason is SkipReason.NOTHING_BETTER


def test_restores_begin_round_by_round() -> None:
    """Of many key groups some are placed at once, the next ones later; what is told is how many are left."""
    many = {kg(at): W0 for at in range(2 * EACH + 1)}
    present = execution(many)
    made = decider(present)
    workers = (W0, W1)
    sizes = []
    for end_s in (1010.0, 1012.0, 1010.0 + ROUND_INTERVAL_S, 1010.0 + 2 * ROUND_INTERVAL_S, 1090.0):
        [action] = made.on_event(end_s + 0.5, asking(window(many, end_s, cpu=0.0001, workers=workers), 1))
        decision = action.decision  # type: ignore[union-attr]
        sizes.append(len(decision.rows) if isinstance(decision, StandbysPlaced) else 0)
        if isinstance(decision, StandbysPlaced):
            assert ("still lack one" in decision.detail) == (sum(sizes) < len(many))
            present = published(made, present, dict(decision.rows))
    assert sizes == [EACH, 0, EACH, 1, 0]


THREE = (W0, W1, WorkerId("w2"))
SPREAD = {kg(at): THREE[0 if at < 3 else 1 if at < 6 else 2] for at in range(9)}


def uneven(made: Decider, cpu: float = 0.1) -> Execution:
    """Worker w1 would inherit all that w0 owns, and w2 nothing."""
    rows = {each: (owner, W0 if owner != W0 else W1) for each, owner in SPREAD.items()}
    return published(made, execution(SPREAD), rows)


def test_a_better_standby_replaces_a_present_one_when_all_have_one_and_then_all_is_calm() -> None:
    made = decider(execution(SPREAD))
    present = uneven(made)
    first = only(made.on_event(1011.0, asking(window(SPREAD, workers=THREE), 1)))
    assert made.known.survivals[APP].worst_pct == pytest.approx(66.0), "30 of its own, 30 of w0, following w2: 6"
    assert isinstance(first, StandbysPlaced)
    assert "in place of others" in first.detail
    present = published(made, present, dict(first.rows))
    for end_s in range(1030, 1500, 10):
        [action] = made.on_event(end_s + 1.0, asking(window(SPREAD, float(end_s), workers=THREE), 1))
        decision = action.decision  # type: ignore[union-attr]
        assert isinstance(decision, Skip), f"at {end_s} again: {decision}"
    assert made.known.survivals[APP].worst_pct < 60.0


def test_a_loss_that_would_overload_a_worker_is_a_concern_also_while_a_standby_is_missing() -> None:
    made = decider(execution(SPREAD))
    rows = {each: (owner, W0 if owner != W0 else W1) for each, owner in SPREAD.items() if each != kg(8)}
    published(made, execution(SPREAD), {**rows, kg(8): (SPREAD[kg(8)],)})
    for end_s in range(1010, 1040, 10):
        made.on_event(end_s + 1.0, asking(window(SPREAD, float(end_s), cpu=0.25, workers=THREE), 1))
    [concern] = made.known.concerns
    assert concern.kind is ConcernKind.LOSS_OVERLOADS
    assert concern.detail.startswith("at least ")
    assert concern.detail.endswith("; without a standby: 1 of the key groups; further ones may make it more")
    assert made.known.survivals == {}, "the value itself is unknown"


def test_a_loss_that_would_overload_a_worker_is_a_concern_after_three_windows() -> None:
    made = decider(execution(SPREAD))
    uneven(made)
    told = []
    for end_s in range(1010, 1060, 10):
        made.on_event(end_s + 1.0, asking(window(SPREAD, float(end_s), cpu=0.25, workers=THREE), 1))
        told.append([concern.kind for concern in made.known.concerns])
        [concern] = made.known.concerns or [None]
    assert told[:2] == [[], []]
    assert told[2:] == [[ConcernKind.LOSS_OVERLOADS]] * 3
    assert concern is not None
    assert "after losing" in concern.detail
    made.on_event(1061.0, asking(window(SPREAD, 1060.0, cpu=0.01, workers=THREE), 1))
    made.on_event(1071.0, asking(window(SPREAD, 1070.0, cpu=0.01, workers=THREE), 1))
    made.on_event(1081.0, asking(window(SPREAD, 1080.0, cpu=0.01, workers=THREE), 1))
    assert made.known.concerns == ()
