"""Remembers what the last plan of each app predicted, and the apps whose plans missed.

A new leader starts with an empty memory: it does not compare its predecessor's plan and knows of no earlier misses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from trimtab_controller.decider.collocation.worth import saved_since
from trimtab_controller.decider.concerns import ClusterUse, Concern
from trimtab_controller.decider.decision import Skip
from trimtab_controller.decider.events import MeasuredMove, RoundMeasured, Saving
from trimtab_controller.decider.observing.evaluate import evaluate
from trimtab_controller.decider.observing.view import DemandView, NotReady
from trimtab_controller.decider.predictions.comparison import (
    Comparison,
    MissedRounds,
    Prediction,
    compare,
    follow_misses,
    review,
)
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.plan import Collocation, PlanReason
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

Views = Mapping[AppId, DemandView | NotReady]
Parts = Mapping[AppId, Snapshot]
MAX_MEASURED = 1_000
"""Moves of a round that are measured: the first ones."""


class PredictionTracker:
    """Compares each round with its plan.  `load_distance` is the band, `min_gain` the smallest useful gain (pp)."""

    def __init__(self, *, load_distance: float, min_gain: float) -> None:
        self._load_distance = load_distance
        self._min_gain = min_gain
        self._seen: dict[AppId, DemandView] = {}
        self._predictions: dict[AppId, Prediction] = {}
        self._misses: dict[AppId, MissedRounds] = {}
        self._compared: dict[AppId, str] = {}  # the last plan of each app that was compared

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """One concern for each app that gets no plans for balance at present."""
        return tuple(misses.concern for misses in self._misses.values() if misses.holding)

    def hold(self, app: AppId, wanted: str) -> Skip | None:
        """The reason to make no plan for balance, which is `wanted` all the same, if the app's last plans missed."""
        misses = self._misses.get(app)
        if misses is None or not misses.holding:
            return None
        detail = f"{app}: {wanted}, but {misses.detail}; no further plan for balance"
        return Skip(reason=SkipReason.PLANS_MISS, detail=detail, app=app)

    def holds(self, app: AppId) -> bool:
        """Whether the app gets no plan for balance, because its last plans missed."""
        misses = self._misses.get(app)
        return misses is not None and misses.holding

    def forgive(self) -> None:
        """Forget all misses, because an operator has resumed."""
        self._misses.clear()

    def plan(self, now: float, app: AppId, collocation: Collocation | None) -> None:
        """Note that a plan was made for an app and will be carried out."""
        self._predictions.pop(app, None)
        if app in self._seen:
            self._predictions[app] = Prediction(decided_at=now, view=self._seen[app], collocation=collocation)

    def forget(self, app: AppId) -> None:
        """Note that the next round of an app is not for balance, and promises nothing."""
        self._predictions.pop(app, None)

    def measure_rounds(
        self, rounds: Mapping[AppId, Round], views: Views, parts: Parts, *, max_age_s: float
    ) -> list[RoundMeasured]:
        """Compare the last round of each app with the first whole window after it.

        `views` are not smoothed.  A window that began more than `max_age_s` after the round says nothing about it.
        """
        self._compared = {app: plan for app, plan in self._compared.items() if app in rounds}
        found = []
        for app, row in rounds.items():
            view = views.get(app)
            if row.ended_at is None or row.plan == self._compared.get(app) or not isinstance(view, DemandView):
                continue
            if view.start_s <= row.ended_at + max_age_s and (measured := self._measured(row, view, parts[app])):
                self._compared[app] = row.plan
                found.append(measured)
        return found

    def _measured(self, last: Round, view: DemandView, part: Snapshot) -> RoundMeasured | None:
        """What a round brought; None if the window does not show it."""
        prediction = self._predictions.get(last.app)
        found = self._measure(last, view, part)
        if found.load_distance is None and found.incomparable is None:
            return None
        return RoundMeasured(
            plan=last.plan,
            app=last.app,
            planned=last.planned,
            load_distance=found.load_distance,
            incomparable=found.incomparable,
            missed=found.missed,
            worker_loads=evaluate(view).worker_loads,
            saving=_saving(prediction, view) if prediction and found.incomparable is None else None,
            moves=measured_moves(last, view),
        )

    def _measure(self, last: Round, view: DemandView, part: Snapshot) -> Comparison:
        """Compare the last round with the first whole window after it."""
        prediction = self._predictions.get(last.app)
        if prediction is None or prediction.decided_at > last.started_at:
            return Comparison(load_distance=evaluate(view).load_distance)  # a predecessor's plan
        found = compare(prediction, view, load_distance=self._load_distance, min_gain=self._min_gain)
        misses = follow_misses(
            self._misses.pop(last.app, None),
            found,
            plan=last.plan,
            prediction=prediction,
            generation=_generation(part),
            now=view.end_s,
        )
        if misses is not None:
            self._misses[last.app] = misses
        return found

    def review(self, views: Views, parts: Parts, use: ClusterUse) -> None:
        """Update the misses with one more window (not smoothed); drop those of apps that are gone."""
        known = {app: view for app, view in views.items() if isinstance(view, DemandView)}
        # Flows are needed only where what they cost is known.
        self._seen = {app: view if view.remote_costs else replace(view, flows={}) for app, view in known.items()}
        if parts:
            self._predictions = {app: each for app, each in self._predictions.items() if app in parts}
        for app, misses in list(self._misses.items()):
            view = views.get(app)
            kept: MissedRounds | None = misses
            if isinstance(view, DemandView) and view.end_s > misses.at:
                over, generation = use.over_capacity, _generation(parts[app])
                kept = review(misses, view, generation=generation, over_capacity=over, now=view.end_s)
            if kept is None or (parts and app not in parts):
                del self._misses[app]
            else:
                self._misses[app] = kept


def _saving(prediction: Prediction, view: DemandView) -> Saving | None:
    """What collocation was to save, and has saved."""
    if prediction.collocation is None:
        return None
    return Saving(planned_pp=prediction.collocation.saved_pp, measured_pp=saved_since(prediction.view, view))


def _generation(part: Snapshot) -> int | None:
    """The generation of the consumer group, as the workers report it."""
    return max((row.generation for row in part.nodes if row.generation is not None), default=None)


def measured_moves(row: Round, view: DemandView) -> tuple[MeasuredMove, ...]:
    """What each move of a round has brought, by the first whole window after it; without those that moved on since.

    A move for balance has paid if its two workers are nearer to the mean load with it than they would be without it:
    the farther one of them counts, with the load that the key group has at its new owner.  Whether a move that
    something else wanted has paid, such as a drain, is not for loads to say.
    """
    moves = list(_made(row))[:MAX_MEASURED]
    if not moves:
        return ()
    found, table = evaluate(view), view.owned
    places = table.places_of([key_group for key_group, _, _ in moves])
    capacity = {worker.id: worker.capacity for worker in view.workers}
    draining = {worker.id for worker in view.workers if worker.draining}
    judged = row.kind is PlanReason.LOAD_DISTANCE and found.mean_load is not None
    told = []
    for (key_group, source, target), place in zip(moves, places.tolist(), strict=True):
        if place < 0 or table.workers[table.owner[place]] != target:
            continue
        load = float(table.load[place])
        known = (
            judged and not np.isnan(load) and {source, target} <= capacity.keys() and not {source, target} & draining
        )
        paid = None
        if known:
            loads, mean = found.worker_loads, found.mean_load or 0.0
            there, here = loads[source] - mean, loads[target] - mean
            back = max(abs(there + load / capacity[source]), abs(here - load / capacity[target]))
            paid = max(abs(there), abs(here)) < back
        told.append(
            MeasuredMove(
                key_group=key_group,
                source=source,
                target=target,
                load_pct=None if np.isnan(load) else load,
                paid=paid,
            )
        )
    return tuple(told)


def _made(row: Round) -> Iterator[tuple[KeyGroup, WorkerId, WorkerId]]:
    for handover in row.handovers:
        if handover.phase is HandoverPhase.DONE:
            for key_group in handover.key_groups:
                yield key_group, handover.source, handover.target
