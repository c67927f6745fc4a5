"""How much of an app's load is not known, and the last known loads that stand in for it.

A key group whose load was not measured counts with its last known load, which is then *stale*.  One that is older than
`stale_limit_s` is dropped; then the key group counts as the mean of its operator.  The last known state and traffic
stand in, too.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.fixed import refusal
from trimtab_controller.decider.window.owned import Floats, OwnedTable
from trimtab_controller.decider.window.view import DemandView, FixedWorker, SmoothedView
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId
from trimtab_protocol.wording import first_few

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastLoads:
    """The last known load of each key group, and the end of its window (epoch seconds).

    `sizes` = the number of key groups of each operator of the app.
    """

    table: OwnedTable
    seen_s: Floats
    sizes: Mapping[OperatorId, int]

    @classmethod
    def of(cls, view: DemandView) -> "LastLoads":
        """The loads that a view shows; those of its fixed workers as far as they were measured."""
        kept = view.kept_table
        table = view.owned.joined(kept.only(~np.isnan(kept.load)))
        return cls(table=table, seen_s=np.full(len(table), view.end_s), sizes=view.sizes)

    def then(self, view: DemandView) -> "LastLoads":
        """The last known loads after one more window."""
        now = LastLoads.of(view)
        older = self.table.places_in(now.table) < 0
        return LastLoads(
            table=now.table.joined(self.table.only(older)),
            seen_s=np.concatenate((now.seen_s, self.seen_s[older])),
            sizes=now.sizes,
        )

    def since(self, start_s: float) -> "LastLoads":
        """Only those that were measured at `start_s` or later."""
        young = self.seen_s >= start_s
        return LastLoads(table=self.table.only(young), seen_s=self.seen_s[young], sizes=self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What is not known of an app.

    `fixed` = its fixed workers; `stale` = key groups without a measured load; `share` = their part of the app's load;
    `of_workers` = the same by owner.
    """

    fixed: tuple[FixedWorker, ...] = ()
    stale: int = 0
    share: float = 0.0
    of_workers: Mapping[WorkerId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledGaps:
    """The views `with_assumed_loads`, what is not known of each, and the apps of which too much is unknown."""

    views: Mapping[AppId, SmoothedView]
    gaps: Mapping[AppId, Gaps]
    refused: Mapping[AppId, NotReady]

    def of(self, app: AppId) -> SmoothedView | NotReady:
        """The view of an app, or why it is refused."""
        return self.refused.get(app) or self.views[app]


def fill_gaps(views: Mapping[AppId, DemandView], last: Mapping[AppId, LastLoads], max_unknown: float) -> FilledGaps:
    """Let the last known loads stand in for what was not measured."""
    assumed = {app: with_assumed_loads(view, last[app]) for app, view in views.items()}
    gaps = {app: gaps_of(view, assumed[app]) for app, view in views.items()}
    return FilledGaps(views=assumed, gaps=gaps, refused=refuse(views, gaps, max_unknown))


def with_assumed_loads(view: DemandView, last: LastLoads) -> SmoothedView:
    """The view with a load of every kept key group; `last` = last known loads that are young enough."""
    kept = view.kept_table
    stale = np.isnan(kept.load)
    if not stale.any():
        return SmoothedView.of(view)
    loaded = kept.with_load(np.where(stale, _assumed(kept, last), kept.load))
    places = kept.places_in(last.table)
    known = stale & (places >= 0)
    state_bytes, traffic = kept.state_bytes.copy(), kept.traffic.copy()
    stateless = known & (state_bytes == UNKNOWN)
    state_bytes[stateless] = last.table.state_bytes[places[stateless]]
    here = traffic[:, known]
    traffic[:, known] = np.where(np.isnan(here), last.table.traffic[:, places[known]], here)
    return SmoothedView.of(view, kept=replace(loaded, state_bytes=state_bytes, traffic=traffic))


def gaps_of(view: DemandView, assumed: SmoothedView) -> Gaps:
    """What is not known of an app; `assumed` = the view `with_assumed_loads`."""
    kept, load = view.kept_table, assumed.kept_table.load
    stale = np.isnan(kept.load)
    if not stale.any():
        return Gaps(fixed=view.fixed)
    total = float(view.owned.load.sum() + load.sum())
    if not total:  # nothing has load: then the number of key groups counts
        load, total = np.ones(len(kept)), float(len(kept) + len(view.owned))
    unknown = np.bincount(kept.owner, np.where(stale, load, 0.0), len(kept.workers)) / total
    return Gaps(
        fixed=view.fixed,
        stale=int(stale.sum()),
        share=float(unknown.sum()),
        of_workers={name: share for name, share in zip(kept.workers, unknown.tolist(), strict=True) if share},
    )


def _assumed(kept: OwnedTable, last: LastLoads) -> Floats:
    """The last known load of each kept key group, or the mean of its operator, or of the app."""
    places = kept.places_in(last.table)
    known = last.table.load
    mean = float(known.mean()) if len(known) else 0.0
    means = np.full(len(kept.operators), mean)
    for place, operator in enumerate(kept.operators):
        if operator in last.table.operators:
            of_operator = known[last.table.operator == last.table.operators.index(operator)]
            means[place] = of_operator.mean() if len(of_operator) else mean
    return np.where(places >= 0, known[places], means[kept.operator]) if len(known) else means[kept.operator]


def refuse(views: Mapping[AppId, DemandView], gaps: Mapping[AppId, Gaps], max_unknown: float) -> dict[AppId, NotReady]:
    """The apps of which too much is unknown."""
    found = {app: too_much_unknown(view, gaps[app], max_unknown) for app, view in views.items()}
    return {app: reason for app, reason in found.items() if reason is not None}


def too_much_unknown(view: DemandView, gaps: Gaps, max_unknown: float) -> NotReady | None:
    """Why an app cannot be planned for; None while at most `max_unknown` of its load is unknown."""
    if gaps.share <= max_unknown + ROUNDING:
        return None
    said = f"{gaps.share:.0%} of the load is unknown, at most {max_unknown:.0%} may be"
    reason = _main_reason(gaps)
    if reason is not None:
        guilty = [each for each in gaps.fixed if each.id in gaps.of_workers or each.reason is reason]
        return refusal(view.app, guilty, reason, said)
    kept = view.kept_table
    unknown = kept.only(np.isnan(kept.load))
    names = first_few((unknown[place].key_group for place in range(len(unknown))), len(unknown))
    detail = f"{len(unknown)} key groups were not reported: {names}; {said}"
    return NotReady(reason=SkipReason.KEY_GROUPS_MISSING, detail=detail, app=view.app)


def _main_reason(gaps: Gaps) -> SkipReason | None:
    """Why most of the unknown load is unknown; None if it is of no fixed worker."""
    shares: defaultdict[SkipReason, float] = defaultdict(float)
    for each in gaps.fixed:
        shares[each.reason] += gaps.of_workers.get(each.id, 0.0)
    # The load of a worker of which nothing else is known counts at the placed owner.
    known = {reason: share for reason, share in shares.items() if share or reason is SkipReason.OWNER_UNKNOWN}
    return max(known, key=lambda each: known[each], default=None)
