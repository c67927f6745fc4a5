"""An operator who decides about plans: approves most, rejects some, forgets others, and moves key groups by hand."""

import random
from collections.abc import Callable

from tests.sim.simulated.broker import Broker
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.timeline import Timeline
from trimtab_controller.execution.journal import decode_entry
from trimtab_controller.execution.state import Execution, Round
from trimtab_protocol.messages.intents import Approve, Intent, MoveKeyGroups, Reject, RequestedMove
from trimtab_protocol.messages.names import AppId, KeyGroup, Topics, WorkerId

EVERY_S = 3.0
MOVED_BY = "operator moves it"
NOT_FOR_BALANCE = ("drain", MOVED_BY, "the guard rolls plan")
"""How the reasons of plans begin that nobody has to approve, and that may move what is balanced."""


class Operator:
    """Looks at the journal every few seconds.  It has chance of its own: clusters without it play as they did."""

    def __init__(
        self,
        seed: int,
        timeline: Timeline,
        broker: Broker,
        topics: Topics,
        say: Callable[[Intent], None],
        workers: Callable[[], list[WorkerId]],
        key_groups: Callable[[], list[KeyGroup]],
    ) -> None:
        self._random = random.Random(seed)
        self._timeline = timeline
        self._broker = broker
        self._topics = topics
        self._say = say
        self._workers = workers
        self._key_groups = key_groups
        self._decided: set[str] = set()
        self.approved: set[str] = set()
        self.seen: set[str] = set()
        self.moves = 0
        self.calm = False
        """Whether every plan is approved now, and nothing is moved by hand."""
        timeline.after(EVERY_S, self._look)

    def _look(self) -> None:
        self._timeline.after(EVERY_S, self._look)
        execution = self._journal()
        if execution is None:
            return
        for row in execution.proposals.values():
            self.seen.add(row.id)
            if row.waits and row.id not in self._decided:
                self._decide(row.id)
        if not self.calm and self._random.random() < 0.03:
            self._move()

    def _journal(self) -> Execution | None:
        records = self._broker.read(self._topics.journal, 0)
        return decode_entry(records[-1].value).execution if records else None

    def _decide(self, plan: str) -> None:
        chance = 0.0 if self.calm else self._random.random()
        now = self._timeline.now
        if chance < 0.6:
            self.approved.add(plan)
            self._decided.add(plan)
            self._say(Approve(plan=plan, by="operator", at=now, reason="simulated"))
        elif chance < 0.7:
            self._decided.add(plan)
            self._say(Reject(plan=plan, by="operator", at=now, reason="simulated"))
        elif chance < 0.75:
            self._decided.add(plan)  # and is forgotten

    def _move(self) -> None:
        workers, key_groups = self._workers(), self._key_groups()
        chosen = self._random.sample(key_groups, min(len(key_groups), self._random.randint(1, 3)))
        if chosen and workers:
            moves = tuple(RequestedMove(key_group=each, worker=self._random.choice(workers)) for each in chosen)
            self._say(MoveKeyGroups(moves=moves, by="operator", at=self._timeline.now, reason="simulated"))
            self.moves += 1

    def check(self, row: Round, waited: dict[AppId, str]) -> None:
        """Raise Violation for a plan that has begun without having been approved; `waited` = plans that waited."""
        if row.lost or row.reason.startswith(NOT_FOR_BALANCE):
            return
        if waited.get(row.app) != row.plan:
            raise Violation(f"plan {row.plan} begins and did not wait for approval: {row.reason}")
        if row.plan not in self.approved:
            raise Violation(f"plan {row.plan} begins and nobody has approved it")
