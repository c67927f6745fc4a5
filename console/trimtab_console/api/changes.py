"""What operators ask of the controller.  Each request has a reason, a dry run, and an idempotency key."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, create_model, model_validator
from pydantic import Field as Limits

from trimtab_console.api.person import ChangingRoute, Operator, address_of
from trimtab_console.api.source import From
from trimtab_console.desk import Decide, Desk, RequestRefused
from trimtab_console.desk import Request as Wanted
from trimtab_console.why import CannotSayError
from trimtab_controller.intents.plans import Looked
from trimtab_controller.intents.policies import POLICIES
from trimtab_protocol.actions import ACTIONS, NEEDED, Action, Field
from trimtab_protocol.console_documents import ChangeDocument
from trimtab_protocol.messages.decode import printable

MAX_REASON, MAX_KEY = 2_000, 200

router = APIRouter(prefix="/intents", tags=["changes"], route_class=ChangingRoute)


class Asking(BaseModel):
    """`reason` is shown in the status and in the controller's log; `dry_run`: tell what would follow, write nothing."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Limits(min_length=1, max_length=MAX_REASON), AfterValidator(printable)]
    dry_run: bool = False


class EitherAsking(Asking):
    """Says exactly one of its own fields."""

    @model_validator(mode="after")
    def _is_one(self) -> "EitherAsking":
        names = [name for name in type(self).model_fields if name not in Asking.model_fields]
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise ValueError(f"expected either {' or '.join(names)}")
        return self


def _body_of(action: Action) -> type[Asking]:
    """What the body of a request for this action is."""
    if not action.fields:
        return Asking
    fields: dict[str, Any] = {each.name: (_type_of(each), _default_of(each)) for each in action.fields}
    name = "".join(map(str.capitalize, action.name.split("-")))
    return create_model(f"{name}Asking", __base__=EitherAsking if action.either else Asking, **fields)


def _type_of(field: Field) -> Any:
    kind: Any = Annotated[field.kind, Limits(**field.limits)]
    if field.many is not None:
        kind = Annotated[list[kind], Limits(**field.many)]
    return kind | None if field.null or field.default is None else kind


def _default_of(field: Field) -> Any:
    return Limits(... if field.default is NEEDED else field.default, description=field.help)


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

    def hand_in(self, action: Action, asking: Asking, decide: Decide) -> ChangeDocument:
        """The answer.  Raises HTTPException."""
        wanted = Wanted(
            action=action.title,
            arguments=asking.model_dump_json(exclude={"dry_run", "reason"}),
            reason=asking.reason,
            dry_run=asking.dry_run,
            key=self._key,
            by=self._by,
            address=self._address,
        )
        try:
            return self._desk.carry_out(wanted, decide)
        except RequestRefused as refused:
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


def _add_route(action: Action) -> None:
    def post(asking: Asking, at: At) -> ChangeDocument:
        looked = {"looked": at.look()} if action.looks else {}
        given = asking.model_dump(mode="json", include={each.name for each in action.fields})
        return at.hand_in(action, asking, lambda asked: POLICIES[action.name](**given)(asked, **looked))

    post.__annotations__["asking"] = _body_of(action)  # FastAPI reads there what the body is
    text = f"{action.help[0].upper()}{action.help[1:]}."
    name = f"post_{action.name.replace('-', '_')}"
    router.add_api_route(f"/{action.name}", post, methods=["POST"], name=name, description=text)


for _action in ACTIONS.values():
    _add_route(_action)
