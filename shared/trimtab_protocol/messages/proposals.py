"""Plans that wait for an operator's approval, as part of the status."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Name, Text
from trimtab_protocol.messages.names import AppId, WorkerId

MAX_SHOWN = 100
"""Moves of one plan in the status; events have all of them."""
MAX_PROPOSALS = 10_000
"""Plans of one status that wait: one per app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMove:
    """A move of a plan that waits; `state_bytes` None = not measured."""

    key_group: Annotated[str, Text(500)]
    source: WorkerId
    target: WorkerId
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalStatus:
    """A plan that waits for approval, since `at` until `expires_at` (epoch seconds).

    Load distances in pp.  `moves` = the first ones of `moves_total`, of which `to_standbys` go to standbys.
    `restore_bytes` = state that the targets have to restore, without what their copies on disk have; `unmeasured` =
    moves whose state is not measured.  `rejected` = by whom it was
    rejected, and why: it is not carried out, and no other plan for balance is proposed until `expires_at`.
    """

    plan: Name
    app: AppId
    reason: Annotated[str, Text(4000)]
    at: float
    expires_at: float
    before: float
    planned: float
    lower_bound: float
    moves: Annotated[tuple[ProposedMove, ...], Most(MAX_SHOWN)]
    moves_total: int
    to_standbys: int
    restore_bytes: int
    unmeasured: int
    rejected: Annotated[str | None, Text(4000)] = None
