"""Trial moves: bring a few pairs of key groups together to learn what keeping their tuples local saves.  Pure.

The cost of a tuple between workers is learned from key groups with local and with remote partners.  Where every pair
is apart, as in the worst start of Madsen et al. (2017, section 5.4), there is nothing to compare, and the cost would
stay unknown for ever.  So where the largest saving that is still possible would be worth a plan, `TRIAL_PAIRS` pairs of
these two operators come together, the busiest ones first.  No worker gets further from the mean than half of the
band, and the restores must cost less than that saving pays back.  At most half of those apart come together at once,
so that others are left to compare with in the same windows.  Pairs that are together already count, so nothing has
to be remembered, and none of them is parted for another, so trials come to an end.  Where no tuple has skipped the
broker yet, a single pair comes first: most apps have no local topics.  Once a pair shows that its tuples go through the
broker within a worker too, there are no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.policies.explain import SingleMoves, plan_for
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import MAX_FLOWS, SCORE_FACTOR, FlowTable, counted, flows_of
from trimtab_controller.decider.window.demand import Bools
from trimtab_controller.decider.window.owned import Integers
from trimtab_controller.decider.window.resources import filled_by
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import PlanReason
from trimtab_models.albic.fit import CHANCE, CostFit, TupleCost, Unknown, student_quantile
from trimtab_models.albic.problem import PAY_BACK_S
from trimtab_models.albic.scores import Pairs, scored_among
from trimtab_protocol.messages.names import OperatorId, WorkerId

END_S = 0.00025
"""What a remote tuple costs at each end at most while nothing is known, CPU seconds: `benchmarks.local_hop`
measures 0.6 ms for both."""
SETTLING_WINDOWS = 4
"""Windows after a round until the costs have learned from it."""
TRIAL_PAIRS = 12
"""So many pairs of two operators come together in all.  `remote_tuple_cpu_s`, once stated, ends all trials."""
MOST_TRIED = 50
"""Pairs that are tried against band, rules and the hosts' limits."""

BAND_SHARE = 0.5
"""Share of the band that a trial may use up: at its edge, the next noise would bring a plan for balance."""

IDLE = (SkipReason.INSIDE_BAND, SkipReason.INSIDE_NOISE, SkipReason.NOTHING_BETTER)
"""When an app is at rest."""

Fits = Mapping[OperatorId, CostFit]


@dataclass(frozen=True, slots=True)
class _Edge:
    """Two operators with P pairs that stand out; `saving_s` = CPU seconds per tuple that they may save at most.

    `joined` (K,) = the key groups of the app that are together with one of any operator.
    """

    source: OperatorId
    target: OperatorId
    saving_s: float
    pairs: Pairs
    joined: Bools


def trial_in(
    now: float, view: PlannableView, fits: Fits, execution: Execution, settings: Settings, idle: Skip
) -> Planned | None:
    """The trial moves of an app for which nothing else is to be done, as `idle` says; None if none pays."""
    last = execution.rounds.get(view.app)
    rest_s = max(settings.min_interval_s, SETTLING_WINDOWS * (view.end_s - view.start_s))
    if (
        idle.reason not in IDLE
        or not settings.learns_by_trial
        or view.draining
        or len(view.flows) > MAX_FLOWS
        or (last is not None and (last.ended_at is None or now - last.ended_at < rest_s))
    ):
        return None
    for edge in _edges(view, fits):
        if moves := _moves(view, edge, settings):
            return _planned(view, edge, moves)
    return None


def _edges(view: PlannableView, fits: Fits) -> list[_Edge]:
    """The pairs of operators whose cost is not known yet and may be worth something, the busiest first."""
    flows, table = flows_of(view), view.owned
    scored = scored_among(table.operator, flows.source, flows.target, flows.rate, SCORE_FACTOR)
    one, other = table.operator[scored.first], table.operator[scored.second]
    first, second = np.minimum(one, other), np.maximum(one, other)
    together = scored.together(np.array(table.owner))
    joined = np.zeros(len(table), np.bool_)
    joined[scored.first[together]] = joined[scored.second[together]] = True
    found = []
    for source, target in sorted(_talking(view, flows)):
        saving_s = _possible(fits, table.operators[source], table.operators[target])
        chosen = (first == min(source, target)) & (second == max(source, target))
        names = (table.operators[source], table.operators[target])
        if saving_s > 0.0 and chosen.any() and names not in view.by_broker:
            found.append(_Edge(*names, saving_s, scored.subset(chosen), joined))
    return sorted(found, key=lambda edge: -float(edge.pairs.rate.sum()) * edge.saving_s)


def _talking(view: PlannableView, flows: FlowTable) -> set[tuple[int, int]]:
    operator = view.owned.operator
    return set(zip(operator[flows.source].tolist(), operator[flows.target].tolist(), strict=True))


def _possible(fits: Fits, source: OperatorId, target: OperatorId) -> float:
    """CPU seconds that a local tuple may save at both ends; 0 if one of them is known."""
    if source not in fits or target not in fits:
        return 0.0
    ends = (fits[source].sending, fits[target].receiving)
    return 0.0 if any(counted(end) > 0.0 for end in ends) else sum(_at_most(end) for end in ends)


def _at_most(cost: TupleCost | Unknown) -> float:
    if isinstance(cost, Unknown):
        return 0.0 if cost is Unknown.NO_TUPLES else END_S
    return min(END_S, max(0.0, cost.value + student_quantile(cost.freedom, 1.0 - CHANCE) * cost.error))


def _moves(view: PlannableView, edge: _Edge, settings: Settings) -> dict[int, WorkerId]:
    """Row of the view -> target: as many pairs as are missing, at most a round's; empty if they cannot pay back."""
    table = view.owned
    apart = ~edge.pairs.together(np.array(table.owner))
    half = (int(apart.sum()) + 1) // 2  # what stays apart shows what changes for all meanwhile
    wanted = min(TRIAL_PAIRS - int((~apart).sum()), settings.max_migrations, half)
    if view.none_direct:
        wanted = min(wanted, 1)
    cores = edge.saving_s * float(edge.pairs.rate[apart].sum())
    if wanted <= 0 or 100.0 * cores < settings.min_gain * sum(worker.capacity for worker in view.workers):
        return {}
    rows = np.flatnonzero(apart)
    busiest = rows[np.argsort(-edge.pairs.rate[rows], kind="stable")][:MOST_TRIED]
    moves: dict[int, WorkerId] = {}
    used: set[int] = set()
    for pair in busiest.tolist():
        ends = (int(edge.pairs.first[pair]), int(edge.pairs.second[pair]))
        if used.isdisjoint(ends) and (found := _join(view, moves, ends, edge.joined, settings)) is not None:
            moves[found[0]] = found[1]
            used.update(ends)
        if len(moves) == wanted:
            break
    moved = list(moves)
    cost_s = len(moved) * view.restore.unit_s + float(table.assumed_state_bytes[moved].sum()) / view.restore.bytes_s
    return moves if cost_s <= cores * PAY_BACK_S else {}


def _join(
    view: PlannableView, moves: Mapping[int, WorkerId], ends: tuple[int, int], joined: Bools, settings: Settings
) -> tuple[int, WorkerId] | None:
    """The end of a pair to move, and where to: the one with less state, if it may."""
    table = view.owned
    state: Integers = table.assumed_state_bytes
    now = SingleMoves(view, moves)
    places = view.numbers
    most = max(BAND_SHARE * settings.load_distance, now.load_distance or 0.0)
    for row, anchor in sorted((ends, ends[::-1]), key=lambda each: (state[each[0]], each[0])):
        target = table[anchor].owner
        place = np.array([places[target]])
        if joined[row] or table[row].key_group in view.pinned or view.places.frozen[row]:
            continue
        if not bool(np.all(view.places.may(np.array([row]), place))) or now.limit(row, places[target]) is not None:
            continue
        if (SingleMoves(view, {**moves, row: target}).load_distance or 0.0) <= most:
            return row, target
    return None


def _planned(view: PlannableView, edge: _Edge, moves: Mapping[int, WorkerId]) -> Planned:
    detail = (
        f"trial: {len(moves)} pairs of {edge.source} and {edge.target} come together, "
        f"at most {TRIAL_PAIRS} in all, to learn what that saves"
    )
    return Planned(plan=plan_for(view, moves, filled_by(view, moves), PlanReason.COLLOCATION, detail))
