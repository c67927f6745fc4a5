"""The journal entry: the execution state without placements, and the offsets up to which acks were read.

Each entry holds the whole state, so a new leader needs only the last one; its epoch is its place in the sequence.  It
ends with a checksum of the rest, since a changed digit could otherwise still be a valid state.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab_controller.execution.disruption import Disruption
from trimtab_controller.execution.disruption_journal import disruption_document, read_disruption
from trimtab_controller.execution.guard_journal import guard_document, read_guard_stop
from trimtab_controller.execution.proposal_journal import (
    hand_moved_document,
    proposal_document,
    read_hand_moved,
    read_proposal,
)
from trimtab_controller.execution.state import (
    AppSize,
    Execution,
    Handover,
    HandoverPhase,
    Round,
    Scaling,
    ScalingPhase,
    SizeChange,
)
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.commands import VERSION as VERSION_OF_COMMANDS
from trimtab_protocol.messages.commands import Command, Refusal, read_command, read_key_groups
from trimtab_protocol.messages.decode import (
    NAME_PATTERN,
    BadMessage,
    Fault,
    Fields,
    check_integer,
    check_name,
    encode,
    parse,
)
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

VERSION = 2
KEY = b"execution"
MAX_HANDOVERS = 100_000
"""Maximum number of hand-overs of one round in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """`execution` has no placements; `acks_read` = next offset of each partition of the acks topic."""

    execution: Execution
    acks_read: Mapping[int, int] = field(default_factory=dict)


def encode_entry(entry: JournalEntry) -> bytes:
    """The entry in its wire form."""
    execution = entry.execution
    document = {
        "v": VERSION,
        "generation": execution.generation,
        "number": execution.number,
        "acks_read": [[partition, offset] for partition, offset in sorted(entry.acks_read.items())],
        **_rounds_document(execution),
        "scalings": [_scaling_document(scaling) for scaling in execution.scalings.values()],
        # Only if there are any: 0.1.0 does not know them.
        **({"sizes": [_size_document(app, size) for app, size in execution.sizes.items()]} if execution.sizes else {}),
        **_of_operators(execution),
        # Only if pauses are counted: 0.1.0 does not know them.
        **_of_pauses(execution.disruption),
    }
    body = encode(document)
    return body[:-1] + _seal(body)


def _of_operators(execution: Execution) -> dict[str, Any]:
    """Plans that wait, what operators moved, plans that the guard ended; only if there is any: 0.1.0 knows none."""
    proposals, moved = execution.proposals, execution.hand_moved
    return {
        **({"proposals": [proposal_document(row) for row in proposals.values()]} if proposals else {}),
        **({"hand_moved": hand_moved_document(moved)} if moved else {}),
        **({"guarded": [guard_document(row) for row in execution.guarded.values()]} if execution.guarded else {}),
    }


def _of_pauses(found: Disruption) -> dict[str, Any]:
    return {} if found == Disruption() else {"disruption": disruption_document(found)}


def _seal(body: bytes) -> bytes:
    """The checksum as last member of the object `body`; it replaces the closing brace."""
    return b',"sha256":"%s"}' % hashlib.sha256(body).hexdigest().encode()


def _check_seal(payload: bytes) -> None:
    """Raise BadMessage if the entry does not end with the checksum of the rest."""
    size = len(_seal(b""))
    found, expected = payload[-size:], _seal(payload[:-size] + b"}")
    if found != expected:
        raise BadMessage(Fault.MALFORMED, "sha256", found, f"the checksum {expected[11:19].decode()}...")


def _rounds_document(execution: Execution) -> dict[str, Any]:
    """The newest round as `round`, as 0.1.0 knows it; those of further apps as `rounds`, only if there are any."""
    rows = sorted(execution.rounds.values(), key=lambda row: (row.ended_at is None, row.started_at))
    documents = [_round_document(row) for row in rows]
    last = documents.pop() if documents else None
    return {"round": last} | ({"rounds": documents} if documents else {})


def _round_document(row: Round) -> dict[str, Any]:
    names = [name for name in Round.__slots__ if name not in ("handovers", "stopped", "lost", "recovery", "kind")]
    handovers = [_handover_document(handover) for handover in row.handovers]
    stopped = {} if row.stopped is None else {"stopped": row.stopped}
    lost = {"lost": True} if row.lost else {}
    kind = {} if row.kind is None else {"kind": str(row.kind)}
    return {**{name: getattr(row, name) for name in names}, "handovers": handovers, **stopped, **lost, **kind}


def _handover_document(row: Handover) -> dict[str, Any]:
    names = [name for name in Handover.__slots__ if name not in ("lacking_bytes", "priority", "refusal")]
    return {
        **{name: getattr(row, name) for name in names},
        "key_groups": [str(key_group) for key_group in row.key_groups],
        "previous": [list(owners) for owners in row.previous],
        "prepare": row.prepare.document() if row.prepare else None,
        "release": row.release.document() if row.release else None,
    }


def _scaling_document(row: Scaling) -> dict[str, Any]:
    later = {"times": row.times if row.times > 1 else None, "refusal": row.refusal}
    known = {name: value for name, value in later.items() if value is not None}
    return {"command": row.command.document(), "phase": row.phase, "at": row.at, "detail": row.detail} | known


def _size_document(app: AppId, row: AppSize) -> dict[str, Any]:
    return {"app": app, "leaving": list(row.leaving), "changes": [asdict(change) for change in row.changes]}


def decode_entry(payload: bytes | None) -> JournalEntry:
    """Decode an entry; raises BadMessage."""
    fields = parse(payload, version=VERSION)
    _check_seal(payload or b"")
    fields.take("sha256")
    last = fields.optional("round", lambda name: _read_round(fields.fields(name)))
    others = [_read_round(row) for row in fields.objects("rounds", limit=MAX_HANDOVERS)] if fields.has("rounds") else []
    execution = Execution(
        generation=fields.integer("generation"),
        number=fields.integer("number"),
        rounds={row.app: row for row in (*others, *([] if last is None else [last]))},
        scalings={
            scaling.command.worker: scaling
            for scaling in (_read_scaling(row) for row in fields.objects("scalings", limit=MAX_HANDOVERS))
        },
        sizes=dict(_read_size(row) for row in fields.objects("sizes", limit=MAX_HANDOVERS))
        if fields.has("sizes")
        else {},
        proposals={row.app: row for row in map(read_proposal, fields.objects("proposals", limit=MAX_HANDOVERS))}
        if fields.has("proposals")
        else {},
        hand_moved=read_hand_moved(fields, "hand_moved", limit=MAX_HANDOVERS) if fields.has("hand_moved") else {},
        disruption=read_disruption(fields.fields("disruption")) if fields.has("disruption") else Disruption(),
        guarded={row.app: row for row in map(read_guard_stop, fields.objects("guarded", limit=MAX_HANDOVERS))}
        if fields.has("guarded")
        else {},
    )
    acks_read = dict(_read_offset(path, row) for path, row in fields.items("acks_read", limit=1000))
    return JournalEntry(execution=execution, acks_read=acks_read)


def _read_offset(path: str, row: object) -> tuple[int, int]:
    if not isinstance(row, list) or len(row) != 2:
        raise BadMessage(Fault.TYPE, path, row, "[partition, offset]")
    return check_integer(row[0], path, 0, 2**31), check_integer(row[1], path, 0, 2**63 - 1)


def _read_round(fields: Fields) -> Round:
    return Round(
        plan=fields.name("plan"),
        app=AppId(fields.name("app")),
        reason=fields.text("reason", limit=4000),
        status=fields.name("status"),
        fallback=fields.flag("fallback"),
        before=fields.number("before"),
        planned=fields.number("planned"),
        lower_bound=fields.number("lower_bound"),
        started_at=fields.number("started_at"),
        handovers=tuple(_read_handover(row) for row in fields.objects("handovers", limit=MAX_HANDOVERS)),
        ended_at=fields.optional("ended_at", fields.number),
        stopped=fields.optional("stopped", lambda name: fields.text(name, limit=4000)),
        lost=fields.has("lost") and fields.flag("lost"),
        kind=_read_kind(fields) if fields.has("kind") else None,
    )


def _read_kind(fields: Fields) -> PlanReason | None:
    """Why the plan was made; None: a reason that only a later version knows."""
    found = fields.name("kind")
    return PlanReason(found) if found in set(PlanReason) else None


def _read_handover(fields: Fields) -> Handover:
    path = fields.path
    values: dict[str, Any] = {
        "id": fields.name("id"),
        "key_groups": read_key_groups(fields, "key_groups"),
        "previous": tuple(_read_owners(at, row) for at, row in fields.items("previous", limit=MAX_HANDOVERS)),
        "source": WorkerId(fields.name("source")),
        "target": WorkerId(fields.name("target")),
        "source_host": HostId(fields.name("source_host")),
        "target_host": HostId(fields.name("target_host")),
        "state_bytes": fields.integer("state_bytes"),
        "since": fields.number("since"),
        "phase": fields.choice("phase", HandoverPhase),
        "attempt": fields.integer("attempt"),
        "wake_at": fields.optional("wake_at", fields.number),
        "prepare": fields.optional("prepare", lambda name: _read_command(fields, name)),
        "release": fields.optional("release", lambda name: _read_command(fields, name)),
        "detail": fields.optional("detail", lambda name: fields.text(name, limit=100_000)),
        "pause_s": fields.optional("pause_s", fields.number),
    }
    try:
        return Handover(**values)
    except ValueError as error:
        raise BadMessage(Fault.RANGE, path, values["id"], str(error)) from error


def _read_scaling(fields: Fields) -> Scaling:
    return Scaling(
        command=_read_command(fields, "command"),
        phase=fields.choice("phase", ScalingPhase),
        at=fields.number("at"),
        detail=fields.optional("detail", lambda name: fields.text(name, limit=100_000)),
        times=fields.optional("times", fields.integer) or 1,
        refusal=fields.optional("refusal", lambda name: fields.choice(name, Refusal)),
    )


def _read_size(fields: Fields) -> tuple[AppId, AppSize]:
    app = AppId(fields.name("app"))
    leaving = tuple(WorkerId(check_name(each, at)) for at, each in fields.items("leaving", limit=MAX_HANDOVERS))
    changes = tuple(
        SizeChange(
            at=row.number("at"), before=row.integer("before"), after=row.integer("after"), rate=row.number("rate")
        )
        for row in fields.objects("changes", limit=MAX_HANDOVERS)
    )
    return app, AppSize(leaving=leaving, changes=changes)


def _read_command(fields: Fields, name: str) -> Command:
    inner = fields.fields(name)
    if (version := inner.take("v")) != VERSION_OF_COMMANDS:
        raise BadMessage(Fault.VERSION, inner.at("v"), version, f"{VERSION_OF_COMMANDS}")
    return read_command(inner)


def _read_owners(path: str, row: object) -> Owners:
    if not isinstance(row, list) or not all(isinstance(each, str) and NAME_PATTERN.fullmatch(each) for each in row):
        raise BadMessage(Fault.TYPE, path, row, "an array of workers' names")
    return tuple(WorkerId(each) for each in row)
