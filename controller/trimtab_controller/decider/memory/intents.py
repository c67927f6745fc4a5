"""The intents in force.

Intents are dated by the clock of whoever sent them, stops and starts by the controller's.  So a restart counts from
when it was heard, if it is dated later than that.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from trimtab_controller.decider.values.decision import (
    Decision,
    Forgotten,
    IntentRefused,
    MaintenanceEnded,
    Planned,
    ProposalEnded,
    Restarted,
)
from trimtab_protocol.messages.intents import Approve, Drain, Intent, MoveKeyGroups, Pause, Reject, RollingRestart
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

AT_ONCE = (Approve, Reject, MoveKeyGroups)
"""What is decided without waiting for the next window."""


class OperatorIntents:
    """The intents `in_force`; those that a decision answers end with it (`accepted`)."""

    def __init__(self) -> None:
        self.in_force: tuple[Intent, ...] = ()
        self._heard_at: dict[RollingRestart, float] = {}

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return next((each.told for each in self.in_force if isinstance(each, Pause)), None)

    def change(self, now: float, intents: tuple[Intent, ...]) -> bool:
        """Take the intents that are in force now; whether one of them wants an answer before the next window."""
        known, heard_at = self.in_force, self._heard_at
        self._heard_at = {each: heard_at.get(each, now) for each in intents if isinstance(each, RollingRestart)}
        self.in_force = tuple(map(self._dated, intents))
        return any(isinstance(each, AT_ONCE) and each not in known for each in intents)

    def _dated(self, intent: Intent) -> Intent:
        if not isinstance(intent, RollingRestart):
            return intent
        return replace(intent, at=min(intent.at, self._heard_at[intent]))

    def apps_to_move(self) -> set[AppId]:
        """The apps of which an operator wants key groups moved."""
        return {each.app for each in self.in_force if isinstance(each, MoveKeyGroups)}

    def accepted(self, decision: Decision) -> None:
        """End the intents that a decision answers."""
        match decision:
            case Planned() | ProposalEnded() | IntentRefused() | Restarted() | MaintenanceEnded() | Forgotten():
                self.in_force = tuple(intent for intent in self.in_force if intent.key not in decision.answered)
            case _:
                pass


def in_maintenance(intents: Iterable[Intent]) -> dict[HostId, frozenset[WorkerId]]:
    """The workers of each host in maintenance: they are drained and stay off until a time, and are started again then.

    It is a drain of each worker of the host, with an end.  So a controller that takes over knows it from the intents,
    and what holds for drains holds here.  Besides, a host in maintenance may be silent without counting as lost.
    """
    found: defaultdict[HostId, set[WorkerId]] = defaultdict(set)
    for each in intents:
        if isinstance(each, Drain) and each.until is not None and each.host is not None:
            found[each.host].add(each.worker)
    return {host: frozenset(workers) for host, workers in found.items()}
