"""What operators decide about, as parts of the execution state: plans that wait, and key groups that they moved."""

from dataclasses import dataclass, replace
from typing import Annotated

from trimtab_controller.plan import Plan
from trimtab_protocol.messages.codec import Inline, Name, Text
from trimtab_protocol.messages.names import AppId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan that waits for an operator's approval, since `at` until `expires_at` (epoch seconds).

    `id` = how operators call it, and the name of the plan once it begins.  `rejected` = by whom, and why;
    it is kept until `expires_at`, so that it is not proposed again at once.
    """

    id: Name
    plan: Annotated[Plan, Inline()]
    at: float
    expires_at: float
    rejected: Annotated[str | None, Text(4000)] = None

    @property
    def app(self) -> AppId:
        """The app of the plan."""
        return self.plan.app

    @property
    def waits(self) -> bool:
        """Whether nobody has decided about it."""
        return self.rejected is None

    def turned_down(self, by: str, until: float) -> "Proposal":
        """The proposal after its rejection."""
        return replace(self, rejected=by, expires_at=until)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMoved:
    """An operator moved a key group to this worker: it stays there until `until` (epoch seconds)."""

    worker: WorkerId
    until: float
