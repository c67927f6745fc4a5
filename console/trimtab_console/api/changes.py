"""What operators ask of the controller.  Each request has a reason, a dry run, and an idempotency key."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from trimtab_console.api.person import ChangingRoute, Operator, address_of
from trimtab_console.api.source import From
from trimtab_console.desk import Decide, Desk, Refused
from trimtab_console.desk import Request as Wanted
from trimtab_console.why import CannotSayError
from trimtab_controller.intents import actions, maintenance, plans, restart, rules
from trimtab_controller.intents.change import Asked, Change, Fault, Refusal
from trimtab_controller.intents.maintenance import LONGEST_S
from trimtab_controller.intents.names import app_named, host_named, node_named, worker_named
from trimtab_controller.intents.plans import Looked
from trimtab_protocol.console_documents import ChangeDocument
from trimtab_protocol.messages.codec import converted
from trimtab_protocol.messages.decode import BadMessage, printable
from trimtab_protocol.messages.intents import MAX_MOVES, MAX_WORKERS
from trimtab_protocol.messages.rules import MAX_PATTERN, MAX_PATTERNS, MAX_PRIORITY, Rule, RuleKind

MAX_NAME, MAX_REASON, MAX_KEY, MAX_KEY_GROUP, MAX_RANGES_TEXT = 200, 2_000, 200, 500, 1_000

router = APIRouter(prefix="/intents", tags=["changes"], route_class=ChangingRoute)

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Pattern = Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]


class Asking(BaseModel):
    """`reason` is shown in the status and in the controller's log; `dry_run`: tell what would follow, write nothing."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON), AfterValidator(printable)]
    dry_run: bool = False


class WorkerAsking(Asking):
    """About one worker."""

    worker: Name


class StopAsking(Asking):
    """`app` null: the plans of all apps; `pause`: start no new plan either."""

    app: Name | None = None
    pause: bool = False


class ScaleAsking(Asking):
    """`workers` null: the size follows the demand again."""

    app: Name
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None


class MaintenanceAsking(Asking):
    """`for_s` = how long the workers of the host stay off, in seconds; null: the maintenance ends now."""

    host: Name
    for_s: Annotated[float, Field(gt=0, le=LONGEST_S)] | None


class RestartAsking(Asking):
    """`cancel`: end the restart; what is stopped is started again."""

    app: Name
    cancel: bool = False


class ForgetAsking(Asking):
    """Either an app or a worker."""

    app: Name | None = None
    worker: Name | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "ForgetAsking":
        if (self.app is None) == (self.worker is None):
            raise ValueError("expected either app or worker")
        return self


class PlanAsking(Asking):
    """About one plan."""

    plan: Name


class UndoAsking(PlanAsking):
    """`partly`: take back what can go back, and tell what cannot and why; otherwise all of it or nothing."""

    partly: bool = False


class MoveAsking(Asking):
    """Key groups of one app as `app/operator/partition`, and the worker to which they should move."""

    key_groups: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_KEY_GROUP)]], Field(min_length=1, max_length=MAX_MOVES)
    ]
    worker: Name


class RuleAsking(Asking):
    """A rule, with the keys of `[[rule]]` in controller.toml; `until` in epoch seconds."""

    name: Name
    kind: RuleKind
    app: Pattern | None = None
    operator: Pattern | None = None
    key_groups: Annotated[str, Field(min_length=1, max_length=MAX_RANGES_TEXT)] | None = None
    workers: Patterns = Field(default_factory=list)
    hosts: Patterns = Field(default_factory=list)
    zones: Patterns = Field(default_factory=list)
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    until: Annotated[float, Field(gt=0)] | None = None

    @property
    def rule(self) -> Rule:
        """The rule.  Raises Refusal."""
        said = self.model_dump(mode="json", exclude={"dry_run"}, exclude_none=True)
        try:
            return converted(said, Rule)
        except BadMessage as error:
            raise Refusal(Fault.INVALID, str(error)) from error


class RuleNameAsking(Asking):
    """A rule that an operator has added."""

    name: Name


class AcceptAsking(Asking):
    """`hold` = the id of the hold that the operator has seen, as `cluster` has it; another one is not accepted."""

    hold: Name | None = None


Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=MAX_KEY,
        description="Any text that is new; needed unless it is a dry run. A request that is repeated with the same key "
        "and body gets the same answer, and writes nothing again.",
    ),
]


class Counter:
    """Where a request is handed in."""

    def __init__(self, request: Request, source: From, person: Operator, key: Key = None) -> None:
        if source.desk is None or person.name is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, "this console only reads")
        self._desk: Desk = source.desk
        self._explainer = source.explainer
        self._by = person.name
        self._key = key
        self._address = address_of(request)

    def hand_in(self, action: str, asking: Asking, decide: Decide) -> ChangeDocument:
        """The answer.  Raises HTTPException."""
        wanted = Wanted(
            action=action,
            arguments=asking.model_dump_json(exclude={"dry_run", "reason"}),
            reason=asking.reason,
            dry_run=asking.dry_run,
            key=self._key,
            by=self._by,
            address=self._address,
        )
        try:
            return self._desk.carry_out(wanted, decide)
        except Refused as refused:
            raise HTTPException(refused.status, refused.detail) from refused

    def look(self) -> Looked:
        """What a controller would know now.  Raises HTTPException."""
        if self._explainer is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "this console does not read the topics")
        try:
            return self._explainer.looked()
        except CannotSayError as error:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error


At = Annotated[Counter, Depends(Counter)]


@router.post("/drain")
def post_drain(asking: WorkerAsking, at: At) -> ChangeDocument:
    """Move everything off a worker, then stop it."""
    return at.hand_in("drain", asking, lambda asked: actions.drain(asked, node_named(asking.worker)))


@router.post("/undrain")
def post_undrain(asking: WorkerAsking, at: At) -> ChangeDocument:
    """Cancel a drain."""
    return at.hand_in("undrain", asking, lambda asked: actions.undrain(asked, node_named(asking.worker)))


@router.post("/pause")
def post_pause(asking: Asking, at: At) -> ChangeDocument:
    """Start no new plan; a plan in flight is finished."""
    return at.hand_in("pause", asking, actions.pause)


@router.post("/resume")
def post_resume(asking: Asking, at: At) -> ChangeDocument:
    """End a pause."""
    return at.hand_in("resume", asking, actions.resume)


@router.post("/stop")
def post_stop(asking: StopAsking, at: At) -> ChangeDocument:
    """End the plans in flight: released key groups arrive, all others stay where they are."""

    def decide(asked: Asked) -> Change:
        app = None if asking.app is None else app_named(asking.app)
        return actions.stop(asked, app, with_pause=asking.pause)

    return at.hand_in("stop", asking, decide)


@router.post("/scale")
def post_scale(asking: ScaleAsking, at: At) -> ChangeDocument:
    """Say how many workers an app should have, whatever its demand is; or take that back."""
    app, workers = asking.app, asking.workers
    if workers is None:
        return at.hand_in("scale", asking, lambda asked: actions.scale_auto(asked, app_named(app)))
    return at.hand_in("scale", asking, lambda asked: actions.scale(asked, app_named(app), workers))


@router.post("/forget")
def post_forget(asking: ForgetAsking, at: At) -> ChangeDocument:
    """Drop an app, or a worker's name, that is gone for good."""
    app, worker = asking.app, asking.worker
    if app is not None:
        return at.hand_in("forget", asking, lambda asked: actions.forget_app(asked, app_named(app)))
    assert worker is not None
    return at.hand_in("forget", asking, lambda asked: actions.forget_worker(asked, worker_named(worker)))


@router.post("/maintenance")
def post_maintenance(asking: MaintenanceAsking, at: At) -> ChangeDocument:
    """Drain the workers of a host, keep them off for some time, and start them again; or end that now."""
    host, for_s = asking.host, asking.for_s
    if for_s is None:
        return at.hand_in("maintenance", asking, lambda asked: maintenance.end(asked, host_named(host)))
    return at.hand_in("maintenance", asking, lambda asked: maintenance.maintenance(asked, host_named(host), for_s))


@router.post("/rolling-restart")
def post_rolling_restart(asking: RestartAsking, at: At) -> ChangeDocument:
    """Restart all workers of an app, host by host: each is drained, stopped and started; or end that now."""
    begin_or_end = restart.cancel if asking.cancel else restart.rolling_restart
    return at.hand_in("rolling restart", asking, lambda asked: begin_or_end(asked, app_named(asking.app)))


@router.post("/approve")
def post_approve(asking: PlanAsking, at: At) -> ChangeDocument:
    """Carry out a plan that waits for approval."""
    return at.hand_in("approve", asking, lambda asked: plans.approve(asked, asking.plan))


@router.post("/reject")
def post_reject(asking: PlanAsking, at: At) -> ChangeDocument:
    """Do not carry out a plan that waits for approval."""
    return at.hand_in("reject", asking, lambda asked: plans.reject(asked, asking.plan))


@router.post("/move")
def post_move(asking: MoveAsking, at: At) -> ChangeDocument:
    """Move key groups of one app to a worker, in a plan of their own."""
    looked = at.look()

    def decide(asked: Asked) -> Change:
        return plans.move(asked, plans.placings(asking.key_groups, asking.worker), looked)

    return at.hand_in("move", asking, decide)


@router.post("/undo")
def post_undo(asking: UndoAsking, at: At) -> ChangeDocument:
    """Move back what a plan has moved, in a plan of its own."""
    looked = at.look()
    return at.hand_in("undo", asking, lambda asked: plans.undo(asked, asking.plan, looked, partly=asking.partly))


@router.post("/add-rule")
def post_add_rule(asking: RuleAsking, at: At) -> ChangeDocument:
    """Keep a rule about where key groups may be; a dry run tells how many have to move, and what cannot hold."""
    looked = at.look()
    return at.hand_in("add rule", asking, lambda asked: rules.add(asked, asking.rule, looked))


@router.post("/remove-rule")
def post_remove_rule(asking: RuleNameAsking, at: At) -> ChangeDocument:
    """Take back a rule that an operator has added."""
    return at.hand_in("remove rule", asking, lambda asked: rules.remove(asked, asking.name))


@router.post("/accept-journal")
def post_accept_journal(asking: AcceptAsking, at: At) -> ChangeDocument:
    """End a hold: carry on without the state that was lost with the journal."""
    return at.hand_in("accept journal", asking, lambda asked: actions.accept_journal(asked, asking.hold))
