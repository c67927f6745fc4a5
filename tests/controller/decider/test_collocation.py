"""ALBIC in the decider: what brings key groups together is worth a round inside the band, and nothing less is."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.controller.decider.decider_situations import W0, W1, a_window, a_worker, owned, plannable
from tests.narrow import of_type
from trimtab_controller.decider.memory.evaluate import LoadHistory, evaluate, follow
from trimtab_controller.decider.policies.admission import SolveWanted, admit
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.judgement import judge, noted
from trimtab_controller.decider.policies.smaller import PotentialPlan, can_be_spread, potential_of
from trimtab_controller.decider.values.decision import Planned, Skip, describe, names_of
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import (
    LocalTopic,
    NotLocal,
    end_costs,
    local_sends,
    method_note,
    planned_with,
    together_in,
    with_stated_costs,
)
from trimtab_controller.decider.window.view import EndCosts, PlannableView
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import Collocation, PlanReason
from trimtab_controller.solver.answer import Answer, Method
from trimtab_controller.solver.balance import answer
from trimtab_models.albic.fit import CostFit, TupleCost, Unknown
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId
from trimtab_protocol.messages.snapshot import PairWindow

APP = AppId("app")
MILP = Settings(method=Method.MILP, load_distance=5.0, min_windows=1, max_migrations=4)
ALBIC = replace(MILP, method=Method.ALBIC, remote_tuple_cpu_s=5e-4)
UNMEASURED = replace(ALBIC, remote_tuple_cpu_s=None)
NOTE = "collocation: not used, no significant saving is measured"


def kg(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId(operator), partition)


def crossed(*, draining: bool = False, load: float = 10.0, rate: float = 100.0) -> PlannableView:
    """Two workers, balanced; each of two sources sends to the sink on the other worker only."""
    owners = {kg("in", 0): W0, kg("in", 1): W1, kg("sums", 0): W1, kg("sums", 1): W0}
    return plannable(
        [a_worker(W0, "h-w0"), a_worker(W1, "h-w1", draining=draining)],
        [owned(each, owner, load, 9) for each, owner in owners.items()],
        flows={(kg("in", 0), kg("sums", 0)): rate, (kg("in", 1), kg("sums", 1)): rate},
    )


def heaped() -> PlannableView:
    """The same, all on one of the workers."""
    return replace(crossed(), key_groups=tuple(replace(row, owner=W0) for row in crossed().key_groups))


def admitted(view: PlannableView, settings: Settings, windows: int = 1) -> Skip | SolveWanted:
    return admit(100.0, view, evaluate(view), Execution(generation=1), settings, windows=windows)


def test_albic_waits_for_windows_and_rests_where_nothing_is_apart_or_nothing_flows() -> None:
    early = of_type(Skip, admitted(crossed(), replace(ALBIC, min_windows=3), windows=2))
    assert early.reason is SkipReason.TOO_FEW_WINDOWS
    local = {(kg("in", 0), kg("sums", 1)): 5.0}
    for flows, collocation in (({}, None), (local, 1.0)):
        view = replace(crossed(), flows=flows)
        assert evaluate(view).collocation == collocation
        found = of_type(Skip, admitted(view, ALBIC))
        assert found.reason is SkipReason.INSIDE_BAND


def test_the_model_brings_them_together_and_the_plan_says_so() -> None:
    wanted = of_type(SolveWanted, admitted(crossed(), ALBIC))
    found = of_type(Answer, answer(question_of(wanted.view, ALBIC, 10.0)))
    assert found.collocation == Collocation(before=0.0, planned=1.0, saved_pp=pytest.approx(5.0), spared_s=200.0)
    assert found.load_distance <= ALBIC.load_distance
    decision = of_type(Planned, judge(wanted, found, ALBIC))
    assert len(decision.plan.moves) == 2
    assert names_of(decision) == ("plan", "collocation")
    assert "collocation 0.0% -> 100.0%, saving 5.0 pp of load, and the broker 200 tuples/s, because" in describe(
        decision
    )
    assert NOTE not in describe(noted(decision, method_note(ALBIC, crossed())))


@pytest.mark.parametrize(
    ("planned", "saved_pp", "moves"), [(0.5, 0.6, False), (0.521, 0.6, True), (0.521, 0.5, True), (1.0, 0.49, False)]
)
def test_a_round_inside_the_band_needs_its_gain_of_collocation_and_of_load(
    planned: float, saved_pp: float, moves: bool
) -> None:
    wanted = SolveWanted(view=crossed(), reason=PlanReason.COLLOCATION, detail="collocation 50%", balancing=False)
    found = Answer(
        moves=((0, 1),),
        status="feasible",
        before=4.0,
        load_distance=0.0,
        lower_bound=0.0,
        solve_s=0.1,
        collocation=Collocation(before=0.5, planned=planned, saved_pp=saved_pp),
    )
    assert isinstance(judge(wanted, found, ALBIC), Planned) is moves
    assert isinstance(judge(replace(wanted, balancing=True), found, ALBIC), Planned), "the load distance asks for it"


def test_without_a_measured_saving_plans_are_for_balance_and_every_decision_says_so() -> None:
    calm = of_type(Skip, admitted(crossed(), UNMEASURED))
    assert calm.reason is SkipReason.INSIDE_BAND
    assert (
        describe(noted(calm, method_note(UNMEASURED, crossed())))
        == f"nothing: app: load distance 0.0 pp, inside the band of 5.0 pp; {NOTE}"
    )

    view = heaped()
    wanted = of_type(SolveWanted, admitted(view, UNMEASURED))
    question = question_of(view, UNMEASURED, 10.0)
    assert (question.method, question.flows, question.max_load_distance) == (Method.MILP, None, 5.0)
    found = of_type(Answer, answer(question))
    plan = noted(judge(wanted, found, UNMEASURED), method_note(UNMEASURED, view))
    assert describe(plan).endswith(
        f"load distance 20.0 -> 0.0 (bound 0.0), because load distance 20.0 above 5.0; {NOTE}"
    )
    assert names_of(plan) == ("plan", "load_distance")


def test_flux_plans_also_where_collocation_would_pay_and_every_decision_says_so() -> None:
    by_flux = replace(ALBIC, method=Method.FLUX)
    assert planned_with(replace(UNMEASURED, method=Method.FLUX), crossed()) is Method.FLUX, "without costs too"
    wanted = of_type(SolveWanted, admitted(heaped(), by_flux))
    question = question_of(wanted.view, by_flux, 10.0)
    assert (question.method, question.flows, question.max_migrations) == (Method.FLUX, None, 4)
    found = of_type(Answer, answer(question))
    assert (len(found.moves), found.load_distance) == (2, 0.0)
    plan = noted(judge(wanted, found, by_flux), method_note(by_flux, heaped()))
    assert describe(plan).endswith("because load distance 20.0 above 5.0; planned by Flux, a baseline")
    calm = of_type(Skip, admitted(crossed(), by_flux))
    assert calm.reason is SkipReason.INSIDE_BAND, "it is only for balance"
    assert describe(noted(calm, method_note(by_flux, crossed()))).endswith("; planned by Flux, a baseline")


def test_collocation_is_used_where_it_pays_without_a_switch() -> None:
    default = Settings()
    assert planned_with(default, crossed()) is Method.MILP, "no cost is measured"
    measured = replace(crossed(), remote_costs={OperatorId("in"): EndCosts(sending=1e-4)})
    assert planned_with(default, measured) is Method.ALBIC
    silent = replace(crossed(), flows={})
    assert (method_note(default, silent), method_note(default, crossed())) == ("", NOTE), (
        "nothing is said where nobody talks"
    )


def test_a_topic_that_could_be_local_is_named_with_what_its_measured_ends_save() -> None:
    known, ends = TupleCost(value=3e-4, error=3e-5, freedom=30.0), (OperatorId("in"), OperatorId("sums"))
    sends = CostFit(sending=known, receiving=Unknown.NO_TUPLES)
    gets = CostFit(sending=Unknown.NO_TUPLES, receiving=replace(known, error=4e-5))
    unknown = replace(gets, receiving=Unknown.ALL_REMOTE)
    words = {ends: {"words": 0.25}}

    def found(
        sender: CostFit, receiver: CostFit, view: PlannableView, topics: NotLocal = words
    ) -> tuple[LocalTopic, ...]:
        fits = dict(zip(ends, (sender, receiver), strict=True))
        return together_in(replace(view, remote_costs=view.remote_costs or end_costs(fits)), fits, topics).topics

    both = LocalTopic(
        topic="words", source=ends[0], target=ends[1], measured_at=ends,
        cores=pytest.approx(200.0 * 0.25 * 6e-4), error=pytest.approx(200.0 * 0.25 * 5e-5),
    )  # fmt: skip
    by_broker = replace(crossed(), by_broker=frozenset({ends}))
    assert found(sends, gets, by_broker) == (both,)
    one = replace(both, measured_at=ends[:1], cores=pytest.approx(0.015), error=pytest.approx(0.0015))
    assert found(sends, unknown, by_broker) == (one,), "what is not known does not count"
    stated = with_stated_costs(replace(MILP, remote_tuple_cpu_s=1e-3), by_broker)
    assert found(unknown, unknown, stated) == (replace(both, measured_at=(), cores=pytest.approx(0.05), error=None),), (
        "as an operator states it"
    )
    assert found(unknown, unknown, by_broker) == ()
    assert found(replace(sends, sending=replace(known, error=3e-4)), unknown, by_broker) == (), "it may be chance"
    assert found(sends, gets, by_broker, {}) == ()


def test_flows_are_smoothed_as_loads_are_and_who_sends_no_more_is_forgotten() -> None:
    pair, other = (kg("in", 0), kg("sums", 0)), (kg("in", 1), kg("sums", 1))
    history, seen = LoadHistory(), []
    for flows in ({pair: 100.0, other: 4.0}, {pair: 50.0}, {pair: 0.0}, *[{}] * 20):
        view, history = follow(replace(crossed(), flows=flows), history, 0.5)
        seen.append(dict(view.flows))
    assert seen[:3] == [{pair: 100.0, other: 4.0}, {pair: 75.0, other: 2.0}, {pair: 37.5, other: 1.0}]
    assert seen[-1] == {}


# ---- the share of an app's sends that skips the broker


def pair(app: str, tuples_s: float, direct_s: float | None) -> PairWindow:
    source, target = (KeyGroup(AppId(app), OperatorId(name), 0) for name in ("in", "out"))
    return PairWindow(source=source, target=target, tuples_s=tuples_s, bytes_s=0.0, direct_s=direct_s)


def test_it_is_by_tuples_and_unknown_while_one_sender_does_not_tell() -> None:
    pairs = (
        pair("known", 30.0, 15.0),
        pair("known", 10.0, 10.0),
        pair("remote", 5.0, 0.0),
        pair("upgraded", 30.0, 15.0),
        pair("upgraded", 0.1, None),
        pair("silent", 0.0, 0.0),
    )
    assert local_sends(a_window(10.0, (), (), pairs=pairs)) == {AppId("known"): 0.625, AppId("remote"): 0.0}


# ---- the potential plan: what collocation saves with free moves, and whether its parts can be balanced


HEAD, TAIL = OperatorId("head"), OperatorId("tail")
COST = EndCosts(sending=1e-3, receiving=2e-3)


def a_key_group(operator: OperatorId, partition: int) -> KeyGroup:
    return KeyGroup(APP, operator, partition)


def view(owners: dict[KeyGroup, int], flows: dict[tuple[KeyGroup, KeyGroup], float], load: float) -> PlannableView:
    """Each key group asks for `load` percent of a core, what remote tuples cost included."""
    workers = [a_worker(f"w{each}") for each in sorted(set(owners.values()))]
    rows = [owned(each, f"w{owner}", load) for each, owner in owners.items()]
    return plannable(workers, rows, flows=flows, remote_costs={HEAD: COST, TAIL: COST})


def apart(pairs: int, load: float = 30.0, rate: float = 50.0) -> PlannableView:
    """Each key group of `head` sends to the one of `tail` with its number, which is on another worker."""
    owners = {a_key_group(HEAD, each): each % 2 for each in range(pairs)} | {
        a_key_group(TAIL, each): (each + 1) % 2 for each in range(pairs)
    }
    return view(owners, {(a_key_group(HEAD, each), a_key_group(TAIL, each)): rate for each in range(pairs)}, load)


def test_pairs_that_fit_come_together_and_save_both_ends() -> None:
    found = of_type(PotentialPlan, potential_of(apart(2), [0.7, 0.7]))
    assert found.saving == pytest.approx(2 * 50.0 * 3e-3)
    assert sorted(found.loads.tolist()) == pytest.approx([0.45, 0.45]), "two parts of 0.6 cores less 0.15"


def test_a_plan_of_random_jobs_keeps_its_promise() -> None:
    """Twin: the saving is what the flows within parts cost now, recomputed from the loads."""
    chance = np.random.default_rng(7)
    for _ in range(30):
        heads, tails = int(chance.integers(2, 6)), int(chance.integers(2, 6))
        names = [a_key_group(HEAD, each) for each in range(heads)] + [a_key_group(TAIL, each) for each in range(tails)]
        owners = {name: int(chance.integers(0, 3)) for name in names}
        owners |= {names[each]: each for each in range(3)}
        flows = {
            (a_key_group(HEAD, one), a_key_group(TAIL, other)): float(chance.choice([1.0, 40.0]))
            for one, other in product(range(heads), range(tails))
        }
        its = view(owners, flows, 20.0)
        room = [0.8] * 3
        found = potential_of(its, room)
        if found is None or not found.saving:
            continue
        assert can_be_spread(found.loads, room)
        assert found.loads.max() <= 0.8 + 1e-9
        whole = 0.2 * len(names)
        assert float(found.loads.sum()) == pytest.approx(whole - found.saving)
