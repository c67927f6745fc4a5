"""What collocation can bring to an app: what remote tuples cost, how many could be local, what that is worth.  Pure.

Only a cost that is significant counts; where none is, nothing is worth a move.  The obtainable share is an upper bound:
all pairs that stand out (`trimtab_models.albic.scores`) together, the others as they are.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.demand import Bools
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, Integers, OwnedTable
from trimtab_controller.decider.window.view import AnyDemand, DemandView, EndCosts, PlannableView
from trimtab_controller.solver.answer import Answer, Method
from trimtab_models.albic.fit import CostFit, TupleCost, Unknown
from trimtab_models.albic.problem import PAY_BACK_S
from trimtab_models.albic.scores import scored_among
from trimtab_protocol.messages.names import AppId, OperatorId, Topic
from trimtab_protocol.messages.snapshot import Snapshot

SCORE_FACTOR = 1.5
"""How many times its sender's average a flow must be to stand out (sF)."""
NO_SAVING = "collocation: not used, no significant saving is measured"
BASELINE = "planned by Flux, a baseline"
MAX_FLOWS = 200_000
"""Flows of an app up to which the obtainable share is worked out in every window, which takes some 0.2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTopic:
    """A topic that could be local, and how many cores that would save, with as much collocation as can be had.

    `error` = standard error of `cores`; None: an operator has stated the cost.  `measured_at` = the operators whose
    measured cost counts; where that of one end is not known, nothing counts for it.
    """

    topic: Topic
    source: OperatorId
    target: OperatorId
    cores: float
    error: float | None
    measured_at: tuple[OperatorId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What is known of an app.  `fits` by operator; `cores` = what its key groups use.

    `obtainable` = the share of the tuples that could stay on their workers at most, `worth` = the cores that this would
    save besides what is saved now; None = not known.  `topics` = those that could be local, what saves most first.
    """

    fits: Mapping[OperatorId, CostFit]
    obtainable: float | None = None
    worth: float | None = None
    topics: tuple[LocalTopic, ...] = ()
    cores: float = 0.0


def counted(cost: TupleCost | Unknown) -> float:
    """The cost that plans count with, CPU seconds per tuple: 0 unless it is significant."""
    return cost.value if isinstance(cost, TupleCost) and cost.significant else 0.0


def end_costs(fits: Mapping[OperatorId, CostFit]) -> dict[OperatorId, EndCosts]:
    """The costs that plans count with; operators without a significant one are left out."""
    found = {
        name: EndCosts(sending=counted(fit.sending), receiving=counted(fit.receiving)) for name, fit in fits.items()
    }
    return {name: costs for name, costs in found.items() if costs != EndCosts()}


NotLocal = Mapping[tuple[OperatorId, OperatorId], Mapping[Topic, float]]
"""Of pairs of operators, the topics that are not local, and which share of the pair's tuples they have."""


def together_in(view: DemandView, fits: Mapping[OperatorId, CostFit], not_local: NotLocal) -> Together:
    """What is known of the app of a view."""
    if len(view.flows) > MAX_FLOWS:
        return Together(fits=fits)
    table, flows = view.owned, flows_of(view)
    total = float(flows.rate.sum())
    if not total > 0.0:
        return Together(fits=fits)
    pairs = scored_among(table.operator, flows.source, flows.target, flows.rate, SCORE_FACTOR)
    count = len(table)
    low, high = np.minimum(flows.source, flows.target), np.maximum(flows.source, flows.target)
    scored = np.isin(low * count + high, pairs.first * count + pairs.second)
    apart = (table.owner[flows.source] != table.owner[flows.target]) & (flows.source != flows.target)
    obtainable = float(flows.rate[scored | ~apart].sum()) / total
    known = any(isinstance(cost, TupleCost) for fit in fits.values() for cost in (fit.sending, fit.receiving))
    sending, receiving = costs_of_flows(view, flows)
    worth = float((flows.rate * (sending + receiving))[scored & apart].sum())
    return Together(
        fits=fits,
        obtainable=obtainable,
        worth=worth if known else None,
        topics=_could_be_local(view, fits, not_local, flows, scored | ~apart),
        cores=float(table.load.sum()) / PERCENT_PER_CORE,
    )


def _could_be_local(
    view: DemandView, fits: Mapping[OperatorId, CostFit], not_local: NotLocal, flows: "FlowTable", near: Bools
) -> tuple[LocalTopic, ...]:
    """The topics that are not local although that would save CPU; `near` (F,) = flows within a worker, or nearly."""
    table, found = view.owned, []
    places = {name: place for place, name in enumerate(table.operators)}
    for (source, target), topics in not_local.items():
        ends = [
            (name, getattr(view.remote_costs.get(name, EndCosts()), way), getattr(fits[name], way, None))
            for name, way in ((source, "sending"), (target, "receiving"))
            if name in fits and name in places
        ]
        cost = sum(value for _, value, _ in ends)
        if len(ends) < 2 or not cost:
            continue
        at_ends = (table.operator[flows.source] == places[source]) & (table.operator[flows.target] == places[target])
        rate = float(flows.rate[at_ends & near].sum())
        measured = {name: fit.error for name, value, fit in ends if isinstance(fit, TupleCost) and value == fit.value}
        for topic, share in topics.items():
            found.append(
                LocalTopic(
                    topic=topic,
                    source=source,
                    target=target,
                    cores=rate * share * cost,
                    error=rate * share * float(np.linalg.norm(list(measured.values()))) if measured else None,
                    measured_at=tuple(measured),
                )
            )
    return tuple(sorted(found, key=lambda each: (-each.cores, each.topic)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTable:
    """F flows between key groups of a view, in the order of their ends: places of both ends, tuples per second."""

    source: Integers
    target: Integers
    rate: Floats


def flows_of(view: DemandView) -> FlowTable:
    """The flows of a view; those with key groups that are not in it are left out."""
    table = view.owned
    source = table.places_of(source for source, _ in view.flows)
    target = table.places_of(target for _, target in view.flows)
    rate = np.fromiter(view.flows.values(), np.float64, len(view.flows))
    known = (source >= 0) & (target >= 0)
    order = np.lexsort((target[known], source[known]))
    return FlowTable(source=source[known][order], target=target[known][order], rate=rate[known][order])


def costs_of_flows(view: DemandView, flows: FlowTable) -> tuple[Floats, Floats]:
    """(F,) CPU seconds per tuple at the sending and at the receiving end of each flow, if it is remote."""
    table = view.owned
    known = [view.remote_costs.get(operator, EndCosts()) for operator in table.operators]
    if not known:
        return np.zeros(len(flows.rate)), np.zeros(len(flows.rate))
    saves = ~by_broker(view, flows)
    sending = np.array([each.sending for each in known])[table.operator[flows.source]] * saves
    receiving = np.array([each.receiving for each in known])[table.operator[flows.target]] * saves
    return sending, receiving


def by_broker(view: DemandView, flows: FlowTable) -> Bools:
    """(F,) whether the tuples of each flow go through the broker within a worker too."""
    table = view.owned
    places = {name: place for place, name in enumerate(table.operators)}
    found = np.zeros((len(places), len(places)), np.bool_)
    for source, target in view.by_broker:
        if source in places and target in places:
            found[places[source], places[target]] = True
    through: Bools = found[table.operator[flows.source], table.operator[flows.target]]
    return through


def with_stated_costs(settings: Settings, view: AnyDemand) -> AnyDemand:
    """The view with what an operator says that remote tuples cost, if one does: half of it at each end."""
    if settings.remote_tuple_cpu_s is None:
        return view
    end = settings.remote_tuple_cpu_s / 2.0
    stated = dict.fromkeys(view.sizes, EndCosts(sending=end, receiving=end)) if end else {}
    return view if view.remote_costs == stated else replace(view, remote_costs=stated)


def planned_with(settings: Settings, view: DemandView) -> Method:
    """The method that plans for this app are made with."""
    costs = view.remote_costs if settings.remote_tuple_cpu_s is None else settings.remote_tuple_cpu_s
    return Method.MILP if settings.method is Method.ALBIC and not costs else settings.method


def may_gain(settings: Settings, view: DemandView) -> bool:
    """Whether collocation could lower the mean load of this app by `min_gain`, with every tuple on its worker."""
    view = with_stated_costs(settings, view)
    if planned_with(settings, view) is not Method.ALBIC:
        return False
    flows, table = flows_of(view), view.owned
    sending, receiving = costs_of_flows(view, flows)
    apart = table.owner[flows.source] != table.owner[flows.target]
    cores = float((flows.rate * (sending + receiving))[apart].sum())
    return PERCENT_PER_CORE * cores >= settings.min_gain * view.staying_capacity


def method_note(settings: Settings, view: DemandView | NotReady | None) -> str:
    """That plans are made by a baseline, or why not with `method`; empty if key groups do not talk to each other."""
    if settings.method is Method.FLUX:
        return BASELINE
    if not isinstance(view, DemandView) or not view.flows or planned_with(settings, view) is settings.method:
        return ""
    return NO_SAVING


def pays_back(view: PlannableView, answer: Answer) -> bool:
    """Whether what collocation saves makes up within `PAY_BACK_S` for the restores of all that moves."""
    if answer.collocation is None:
        return False
    rows = [key_group for key_group, _ in answer.moves]
    cost_s = len(rows) * view.restore.unit_s + float(view.owned.assumed_state_bytes[rows].sum()) / view.restore.bytes_s
    cores = answer.collocation.saved_pp / PERCENT_PER_CORE * view.staying_capacity
    return cores * PAY_BACK_S >= cost_s


def loads_foreseen(before: DemandView, after: OwnedTable) -> Floats:
    """(K,) the load of each key group of `after`, with its owners, foreseen from the loads and flows of `before`.

    Percent of a core.  A key group that is not in `before` keeps its load.
    """
    loads = after.loads_in(before.owned)
    if not before.remote_costs or not before.flows or not len(before.owned):
        return loads
    table, flows = before.owned, flows_of(before)
    there = table.places_in(after)
    names = {name: place for place, name in enumerate(table.workers)}
    codes = np.array([names.get(name, len(names) + place) for place, name in enumerate(after.workers)])
    owner = np.where(there >= 0, codes[after.owner[there]], table.owner)
    source, target = flows.source, flows.target
    parted = (owner[source] != owner[target]).astype(np.float64) - (table.owner[source] != table.owner[target])
    sending, receiving = costs_of_flows(before, flows)
    at_source = np.bincount(source, parted * flows.rate * sending, len(table))
    at_target = np.bincount(target, parted * flows.rate * receiving, len(table))
    more = PERCENT_PER_CORE * (at_source + at_target)
    places = after.places_in(table)
    return np.where(places >= 0, np.maximum(0.0, loads + more[places]), loads)


def saved_since(before: DemandView, after: DemandView) -> float | None:
    """By how much the mean load fell per tuple, at the present rate (pp of capacity); None = not known.

    More or fewer tuples change all loads alike.
    """
    rates = sum(before.flows.values()), sum(after.flows.values())
    kept = after.staying_capacity
    if not min(rates) > 0.0 or not kept or before.sizes != after.sizes:
        return None
    expected = float(before.owned.load.sum()) * rates[1] / rates[0]
    return (expected - float(after.owned.load.sum())) / kept


def local_sends(snapshot: Snapshot) -> dict[AppId, float]:
    """Per app, the share of the tuples between its key groups that skipped the broker in this window.

    An app is missing if there were no such tuples, or if a plug-in or agent that sent some is too old to tell.
    """
    sent: defaultdict[AppId, float] = defaultdict(float)
    direct: defaultdict[AppId, float] = defaultdict(float)
    unknown: set[AppId] = set()
    for pair in snapshot.pairs:
        app = pair.source.app
        if pair.direct_s is None:
            unknown.add(app)
        else:
            sent[app] += pair.tuples_s
            direct[app] += pair.direct_s
    return {app: min(1.0, direct[app] / total) for app, total in sent.items() if total and app not in unknown}
