"""Plans that wait for an operator's approval, as part of the status."""

from dataclasses import asdict, dataclass

from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.names import AppId, WorkerId

MAX_SHOWN = 100
"""Moves of one plan in the status; events have all of them."""
MAX_PROPOSALS = 10_000
"""Plans of one status that wait: one per app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMove:
    """A move of a plan that waits; `state_bytes` None = not measured."""

    key_group: str
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

    plan: str
    app: AppId
    reason: str
    at: float
    expires_at: float
    before: float
    planned: float
    lower_bound: float
    moves: tuple[ProposedMove, ...]
    moves_total: int
    to_standbys: int
    restore_bytes: int
    unmeasured: int
    rejected: str | None = None


def proposal_document(row: ProposalStatus) -> dict[str, object]:
    """The fields as JSON types."""
    return asdict(row)


def read_proposal(row: Fields) -> ProposalStatus:
    """The proposal in these fields; raises BadMessage."""
    return ProposalStatus(
        plan=row.name("plan"),
        app=AppId(row.name("app")),
        reason=row.text("reason", limit=4000),
        at=row.number("at"),
        expires_at=row.number("expires_at"),
        before=row.number("before"),
        planned=row.number("planned"),
        lower_bound=row.number("lower_bound"),
        moves=tuple(_read_move(each) for each in row.objects("moves", limit=MAX_SHOWN)),
        moves_total=row.integer("moves_total"),
        to_standbys=row.integer("to_standbys"),
        restore_bytes=row.integer("restore_bytes"),
        unmeasured=row.integer("unmeasured"),
        rejected=row.optional("rejected", lambda name: row.text(name, limit=4000)),
    )


def _read_move(row: Fields) -> ProposedMove:
    return ProposedMove(
        key_group=row.text("key_group", limit=500),
        source=WorkerId(row.name("source")),
        target=WorkerId(row.name("target")),
        state_bytes=row.optional("state_bytes", row.integer),
    )
