"""Numbers the events of one term and says which are to be published with what."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.values.decision import Decision, Planned, ProposalEnded, Proposed
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.publisher import Record
from trimtab_controller.loop.events.of_execution import (
    events_of_step,
    measured_loads,
    proposals_of_step,
)
from trimtab_controller.loop.events.of_status import events_of_status
from trimtab_controller.loop.inbox import MAX_INTENTS
from trimtab_controller.plan import Plan, PlanWhy
from trimtab_protocol.messages.events import Event, EventKind, encode_event, event_of
from trimtab_protocol.messages.intents import Intent, TakenBack
from trimtab_protocol.messages.names import AppId, Topics
from trimtab_protocol.messages.status import Status

MAX_AT_ONCE = 500
"""Events of one publication; of more the first are published, and an event says how many there were."""


class EventLog:
    """The events of one term as leader; it continues after the `previous` status.

    What it returns is to be published in the same transaction as the state or status that it was asked about.
    """

    def __init__(self, topics: Topics, name: str, *, previous: Status | None) -> None:
        """`name` = that of the controller."""
        self._topics = topics
        self._name = name
        self._told = previous
        self._plans: dict[AppId, Plan] = {}
        self._why: dict[AppId, PlanWhy | None] = {}
        self._ended: dict[str, ProposalEnded] = {}
        self._waiting: list[Event] = []
        self._heard: dict[str, Intent] = {}
        self._known: dict[str, Intent] = {}  # those that the last status has
        self._taken_back: dict[str, TakenBack] = {}
        self._generation = 0
        self._count = 0

    def begins(self, now: float, execution: Execution) -> None:
        """Note that a controller leads from now on."""
        self._generation = execution.generation
        plans = ", ".join(row.plan for row in execution.in_flight)
        going_on = f", goes on with plan {plans}" if plans else ""
        text = f"{self._name} leads as generation {execution.generation}{going_on}"
        self._waiting.append(self._event(now, EventKind.LEADER, "begun", text, by=self._name[:200]))

    def heard(self, intents: Sequence[Intent], taken_back: Mapping[str, TakenBack] = MappingProxyType({})) -> None:
        """Note the intents in force, and who has taken others back.

        One that is answered at once is over before the next status.
        """
        self._heard |= {intent.key: intent for intent in intents}
        self._taken_back |= taken_back if len(self._taken_back) < MAX_INTENTS else {}

    def decided(self, decision: Decision) -> None:
        """Note a plan that is about to begin or to wait, for the reasons of its moves; and why one waits no longer."""
        match decision:
            case Planned(plan=plan):
                self._plans[plan.app] = plan
                self._why[plan.app] = plan.why
            case Proposed(plan=plan):
                self._plans[plan.app] = plan
            case ProposalEnded(plan=name):
                self._ended[name] = decision
            case _:
                pass

    def measured(self, now: float, found: RoundMeasured) -> None:
        """Note what a round has brought."""
        after, unclear = found.load_distance, found.incomparable
        text = f"{found.app}: load distance {'unknown' if after is None else f'{after:.1f}'} measured, "
        text += f"{found.planned:.1f} predicted" + (f"; cannot be compared: {unclear}" if unclear else "")
        text += "; missed its prediction" if found.missed else ""
        judged = [each for each in found.moves if each.paid is not None]
        in_vain = sum(not each.paid for each in judged)
        text += f"; {in_vain} of {len(judged)} moves did not pay" if in_vain else ""
        why = self._why.get(found.app)
        self._waiting.append(
            self._event(
                now,
                EventKind.PLAN,
                "measured",
                text,
                app=found.app,
                plan=found.plan,
                planned=found.planned,
                measured=after,
                loads=measured_loads(why, found.worker_loads),
                moves=found.moves,
                moves_total=len(found.moves) or None,
            )
        )

    def of_step(self, now: float, before: Execution, after: Execution) -> list[Record]:
        """The events of a step of the execution."""
        found = events_of_step(now, self._topics.cluster, before, after, self._plans)
        found += proposals_of_step(now, self._topics.cluster, before, after, self._plans, self._ended)
        self._plans.clear()
        self._ended.clear()
        return self._records(found)

    def of_status(self, status: Status) -> list[Record]:
        """The events of a new status, and those noted since the last one."""
        heard = tuple(self._heard.values())
        found = [*self._waiting, *events_of_status(self._told, status, heard, self._taken_back, self._known)]
        self._waiting = []
        lasting = status.intents or {}
        self._known = {key: each for key, each in (self._known | self._heard).items() if key in lasting}
        self._heard.clear()
        self._taken_back.clear()
        if status.window_end is None and self._told is not None:  # nothing is known of them before the first window
            status = replace(status, concerns=self._told.concerns, nodes=self._told.nodes)
        self._told = status
        return self._records(sorted(found, key=lambda event: event.at))

    def _event(self, now: float, kind: str, phase: str, text: str, **known: Any) -> Event:
        return event_of(now, self._topics.cluster, kind, phase, text, **known)

    def _records(self, events: Sequence[Event]) -> list[Record]:
        told = [self._record(event) for event in events[:MAX_AT_ONCE]]
        if (left := len(events) - len(told)) > 0:
            text = f"{left} more events at this time were left out"
            told.append(self._record(self._event(events[-1].at, EventKind.DECISION, "left_out", text)))
        return told

    def _record(self, event: Event) -> Record:
        self._count += 1
        numbered = event if event.id else replace(event, id=f"{self._generation}-{event.at:.3f}-{self._count}")
        return Record(topic=self._topics.events, key=(event.app or "").encode(), value=encode_event(numbered))
