"""What operators can ask for.  The commands, their options and the routes of the HTTP API are made of this table.

A new action is an entry here, a policy in `trimtab_controller.intents.policies`, and a method of the client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from trimtab_protocol.messages.intents import MAX_MOVES, MAX_WORKERS
from trimtab_protocol.messages.rules import MAX_PATTERN, MAX_PATTERNS, MAX_PRIORITY, RuleKind

NEEDED: Any = object()
"""The default of a field that a request must have."""
MAX_NAME, MAX_KEY_GROUP, MAX_RANGES_TEXT = 200, 500, 1_000
"""Characters of a name, of a key group, and of ranges of key groups."""
LONGEST_MAINTENANCE_S = 30 * 86_400.0


def _text(most: int) -> Mapping[str, Any]:
    return {"min_length": 1, "max_length": most}


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that a request says.

    On the command line it is a position, or an option if it has a `flag`; `metavar` stands for its value.
    """

    name: str
    help: str
    metavar: str | None = None
    _: KW_ONLY
    flag: str | None = None
    kind: type = str
    """Text, a number, a flag, or an enumeration: of each element, if it is a list."""
    limits: Mapping[str, Any] = field(default_factory=lambda: _text(MAX_NAME))
    """By the keywords of pydantic: min_length, max_length, gt, ge, le."""
    many: Mapping[str, Any] | None = None
    """The limits of the list; None: it is one value."""
    default: Any = NEEDED
    null: bool = False
    """Whether null is a value of a field that a request must have; it is one of any field whose default it is."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that operators can ask for; the API has its `name` as the last step of a route."""

    name: str
    help: str
    fields: Sequence[Field] = ()
    _: KW_ONLY
    either: bool = False
    """Whether a request says exactly one of the fields."""
    looks: bool = False
    """Whether the answer depends on what a controller knows of the last windows."""
    reason_needed: bool = False
    """Whether the command line has no reason of its own."""

    @property
    def title(self) -> str:
        """How answers and logs name it."""
        return self.name.replace("-", " ")


def _flag(name: str, text: str) -> Field:
    return Field(name, text, flag=f"--{name}", kind=bool, limits={}, default=False)


def _pattern(name: str, text: str) -> Field:
    return Field(name, text, "PATTERN", flag=f"--{name}", limits=_text(MAX_PATTERN), default=None)


def _patterns(what: str) -> Field:
    text, flag = f"its {what}s; may be given more than once", f"--{what}"
    most = {"max_length": MAX_PATTERNS}
    return Field(f"{what}s", text, "PATTERN", flag=flag, limits=_text(MAX_PATTERN), many=most, default=[])


_NODE = Field("worker", "a worker, or all of a host or a zone, see `trimtab status`", "WORKER|HOST|zone:NAME")
_APP = Field("app", "the app's id", "APP")
_PLAN = Field("plan", "its name, such as 3.17, as `trimtab status` shows it", "PLAN")

_ALL = (
    Action("drain", "move everything off a worker, a host or a zone, then stop its workers", [_NODE]),
    Action("undrain", "cancel a drain", [_NODE]),
    Action(
        "forget",
        "drop an app, or a worker's name, that is gone for good",
        [
            Field("app", "the app's id", "APP", default=None),
            Field("worker", "forget this worker instead of an app", "NAME", flag="--worker", default=None),
        ],
        either=True,
    ),
    Action("pause", "start no new plan; a plan in flight is finished"),
    Action(
        "stop",
        "end the plans in flight: released key groups arrive, all others stay where they are",
        [
            Field("app", "only the plan of this app", "APP", default=None),
            _flag("pause", "also start no new plan, as `trimtab pause` does"),
        ],
    ),
    Action("resume", "end a pause"),
    Action(
        "accept-journal",
        "end a hold: carry on without the state that was lost with the journal",
        [Field("hold", "the id of the hold that the operator has seen; another one is not accepted", default=None)],
    ),
    Action("approve", "carry out a plan that waits for approval", [_PLAN]),
    Action("reject", "do not carry out a plan that waits for approval", [_PLAN], reason_needed=True),
    Action(
        "move",
        "move key groups to a worker, in a plan of their own",
        [
            Field(
                "key_groups", "such as orders/sums/17", "APP/OPERATOR/N",
                limits=_text(MAX_KEY_GROUP), many={"min_length": 1, "max_length": MAX_MOVES},
            ),
            Field("worker", "the worker's name, as `trimtab status` shows it", "WORKER"),
        ],
        looks=True,
    ),
    Action(
        "undo",
        "move back what a plan has moved, in a plan of its own",
        [
            _PLAN,
            _flag("partly", "take back what can go back, and say what cannot and why; otherwise all of it or nothing"),
        ],
        looks=True,
    ),
    Action(
        "scale",
        "set the number of workers of an app, whatever its demand",
        [
            _APP,
            Field(
                "workers", "how many workers; `auto` (null in the API): follow the demand again", "N",
                kind=int, limits={"ge": 1, "le": MAX_WORKERS}, null=True,
            ),
        ],
    ),
    Action(
        "rolling-restart",
        "restart all workers of an app, host by host: each is drained, stopped and started by its agent",
        [
            _APP,
            _flag("cancel", "end a restart: workers that are stopped are started, the others stay as they are"),
        ],
    ),
    Action(
        "maintenance",
        "drain the workers of a host, keep them off for some time, and start them again",
        [
            Field("host", "name of the host, as in its agent.toml", "HOST"),
            Field(
                "for_s", "how long the workers stay off, drain included, such as 90m, 2h or 1d", "SPAN",
                flag="--for", kind=float, limits={"gt": 0, "le": LONGEST_MAINTENANCE_S}, null=True,
            ),
        ],
    ),
    Action(
        "add-rule",
        "add a rule, and say what follows",
        [
            Field("name", "its name in `trimtab status` and `trimtab why`; no other rule has it", "NAME"),
            Field("kind", "kind of the rule", flag="--kind", kind=RuleKind, limits={}),
            _pattern("app", "only key groups of these apps"),
            _pattern("operator", "only key groups of these operators"),
            Field(
                "key_groups", "only these key groups, such as 0-15,40", "RANGES",
                flag="--key-groups", limits=_text(MAX_RANGES_TEXT), default=None,
            ),
            *map(_patterns, ("worker", "host", "zone")),
            Field(
                "priority", "-100 to 100: the highest comes first", "NUMBER",
                flag="--priority", kind=int, limits={"ge": -MAX_PRIORITY, "le": MAX_PRIORITY}, default=None,
            ),
            Field(
                "until", "when it ends: in 2h or 3d, or at a time with its zone, such as 2026-12-01T00:00:00Z", "TIME",
                flag="--until", kind=float, limits={"gt": 0}, default=None,
            ),
        ],
        looks=True,
        reason_needed=True,
    ),
    Action("remove-rule", "remove a rule that an operator has added", [Field("name", "the rule's name", "NAME")]),
)  # fmt: skip

ACTIONS: Mapping[str, Action] = {each.name: each for each in _ALL}
"""By their names."""
