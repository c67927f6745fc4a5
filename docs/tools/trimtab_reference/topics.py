"""docs/reference/topics.md: the topics of a cluster, who writes and reads them, and the messages on them."""

import dataclasses
import enum
import inspect
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, cast, get_args, get_origin

from trimtab_controller.decider.forecast import history as demand_history
from trimtab_controller.execution import journal
from trimtab_protocol.messages import (
    commands,
    events,
    handover,
    host_keys,
    intents,
    placement,
    placement_parts,
    report,
    snapshot,
    status,
    taken_back,
)
from trimtab_protocol.messages.codec import NAME, Columns, Member, Most, Range, Text, Wire, Written, members
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, code, first_paragraph, first_sentence, link, plain, table
from trimtab_reference.source import Undocumented, texts_of

CLUSTER = "CLUSTER"
SHOWN = {"intents", "status", "events"}
"""Topics that programs of users may read or write: the fields of their messages are shown."""
MESSAGES: Mapping[str, tuple[type, ...]] = {
    "reports": (report.Report,),
    "snapshots": (snapshot.Snapshot,),
    "placement": (placement.Placement, placement_parts.PlacementHead, placement_parts.PlacementPart),
    "commands": (commands.Command,),
    "acks": (commands.Ack, host_keys.EnrollmentRequest),
    "handover": (handover.HandoverRecord,),
    "journal": (journal.EntryRecord, demand_history.DemandRecord),
    "intents": (
        intents.Said,
        intents.Drain,
        intents.Pause,
        intents.Stop,
        intents.AcceptJournal,
        intents.ForgetApp,
        intents.ForgetWorker,
        intents.Scale,
        intents.Undrain,
        intents.RollingRestart,
        intents.Approve,
        intents.Reject,
        intents.MoveKeyGroups,
        intents.AddRule,
        taken_back.TakenBack,
    ),
    "status": (status.Status,),
    "events": (events.Event, events.EventKind),
    "keys": (host_keys.HostKeys,),
}
RULE = re.compile(r"(?P<writers>.+) -> (?P<readers>[^.]+)\. Key: (?P<key>[^.]+)\. (?P<contents>.+)", re.DOTALL)
"""The docstring of every topic in `Topics`."""


def render() -> str:
    """The page."""
    settings = {each.name.rpartition(".")[2]: each for each in topic_settings(Topics(CLUSTER))}
    parts = [
        "# Topics and messages",
        f"`{CLUSTER}` is the name in `[controller] cluster` and `[agent] cluster`. The controller creates missing "
        "topics with these settings. Messages are JSON; a reader ignores fields that it does not know.",
        "## Topics",
        table(("topic", "written by", "read by", "key", "contents"), map(_topic, settings.values())),
        "## Settings",
        f"`max.message.bytes` is {' or '.join({_largest(each) for each in settings.values()})}.",
        table(
            ("topic", "partitions", "cleanup", "kept for", "further"),
            map(_settings, settings.values()),
        ),
        "## Messages",
        "Fields are shown for the topics that your programs may use: intents, status and events. The "
        "[HTTP API](../guides/console.md#api) has the same values. "
        "[Engine plug-ins](engine-plugins.md) has those that a plug-in reads or writes, and its frames to the agent. "
        "A field with `?` may be absent or null. Numbers are 0 or more unless "
        "stated otherwise. Names have letters, digits, `.`, `_` and `-`, at most 200 characters.",
    ]
    shown: list[type] = []
    for name in settings:
        parts.append(f"### {name}")
        for message in MESSAGES[name]:
            if name in SHOWN:
                parts += _message(message, shown, in_full=name != "status")
            else:
                parts.append(f"{_linked(message)}: {first_paragraph(inspect.getdoc(message) or '')}")
    return "\n\n".join(parts)


def _topic(settings: TopicSettings) -> tuple[str, ...]:
    name = settings.name.rpartition(".")[2]
    said = RULE.fullmatch(plain(inspect.getdoc(getattr(Topics, name)) or ""))
    if said is None:
        raise Undocumented(f"Topics.{name}: its docstring must read `WRITERS -> READERS. Key: KEY. CONTENTS`")
    return f"[`{settings.name}`](#{name})", said["writers"].lower(), said["readers"], said["key"], said["contents"]


def _largest(settings: TopicSettings) -> str:
    return amount(int(dict(settings.configuration)["max.message.bytes"]), "BYTES")


def _settings(settings: TopicSettings) -> tuple[str, ...]:
    keys = dict(settings.configuration)
    del keys["max.message.bytes"]  # stands above the table
    cleanup = keys.pop("cleanup.policy", "delete")
    kept = f"{settings.retention_hours} h" if keys.pop("retention.ms", None) else "the last record of each key"
    further = ", ".join(code(f"{key}={value}") for key, value in keys.items())
    return code(settings.name), str(settings.partitions), cleanup, kept, further


def _linked(cls: type) -> str:
    return link(code(cls.__name__), Path(inspect.getfile(cls)))


def _message(cls: type, shown: list[type], *, in_full: bool) -> Iterator[str]:
    """The fields of a message, and what is nested in it: `in_full` with its fields; each class once on the page."""
    waiting, nested = [cls], list[type]()
    while waiting:
        each = waiting.pop(0)
        if each not in shown:
            if each is cls or in_full:
                yield from _class(each, [base for base in each.__mro__[1:] if base in shown])
            else:
                nested.append(each)
            shown.append(each)
            waiting += _nested(each)
    if nested:
        yield table(("nested", "what it is"), ((_linked(each), first_sentence(each.__doc__ or "")) for each in nested))


def _class(cls: type, bases: Sequence[type]) -> Iterator[str]:
    """A message, without the fields of the `bases`, which stand above it."""
    yield f"#### {cls.__name__}"
    yield plain(inspect.getdoc(cls) or "")
    texts = texts_of(cls)
    if issubclass(cls, enum.Enum):
        yield table(("word", "meaning"), ((code(word.value), texts.get(word.name, "")) for word in cls))
        return
    known = {member.name for base in bases for member in members(cast(Any, base))}
    own = [member for member in members(cast(Any, cls)) if member.name not in known]
    if own:
        yield "\n".join(["```", *(_field(member, texts.get(member.name, "")) for member in own), "```"])


def _field(member: Member, text: str) -> str:
    """Its keys and what JSON has for it; a question mark behind the keys of what may be missing."""
    mark = "" if member.default is dataclasses.MISSING else "?"
    described = _spread(member) if member.spread is not None else _described(member.kind)
    named = "" if member.keys == (member.name,) else f"  ({member.name.replace('_', ' ')})"
    return f"{', '.join(member.keys)}{mark}: {described}{named}" + (f"  # {text}" if text else "")


def _spread(member: Member) -> str:
    """What stands under the several keys of a field."""
    if isinstance(member.spread, Columns):
        return f"an array of each quantity, 1 to {member.spread.most:,} elements"
    kind: Any = _declared(member.kind)[0]
    name = kind.__name__
    return f"the fields of {name}" if dataclasses.is_dataclass(kind) else "the members of one value"


def _described(kind: Any, outer: tuple[Any, ...] = ()) -> str:
    """What JSON has for a declared type, and its limits; `outer` = the rules of the array in which it stands."""
    bare, rules = _declared(kind)
    rule = {type(each): each for each in (*outer, *rules)}
    origin, arguments = get_origin(bare), get_args(bare)
    if Written in rule:
        return _described(rule[Written].kind)
    if origin in (tuple, list, Sequence) and (origin is not tuple or arguments[-1] is ...):
        limits = tuple(each for each in rules if isinstance(each, Range | Text))
        return f"array of {_described(arguments[0], limits)}{_most(rule)}"
    if origin is tuple:
        return f"[{', '.join(map(_described, arguments))}]"
    if origin is Mapping:
        return f"object: name -> {_described(arguments[1])}{_most(rule)}"
    if bare is array:
        return f"array of numbers{_most(rule)}"
    if isinstance(bare, NewType) or rule.get(Text) == NAME:
        return "name"
    if bare is str:
        return f"text, at most {rule[Text].most if Text in rule else 1000} characters"
    if bare in (int, float):
        word = "whole number" if bare is int else "number"
        return f"{word}, {rule[Range].low:g} to {rule[Range].high:g}" if Range in rule else word
    if bare is Any:
        return "any"
    if bare is bool:
        return "true or false"
    if issubclass(bare, tuple):
        return f"[{', '.join(bare._fields)}]"
    row = getattr(bare, "WIRE", Wire()).row
    return f"[{', '.join(member.name for member in members(bare))}]" if row else bare.__name__


def _most(rule: Mapping[type, Any]) -> str:
    return f", at most {rule[Most].count:,}" if Most in rule else ""


def _declared(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its rules and without None, and the rules."""
    if get_origin(kind) is Annotated:
        bare, rules = _declared(get_args(kind)[0])
        return bare, (*kind.__metadata__, *rules)
    if get_origin(kind) in (Union, UnionType):
        return _declared(next(each for each in get_args(kind) if each is not NoneType))
    return kind, ()


def _nested(cls: type) -> list[type]:
    """The classes of ours that the fields of a message name."""
    if issubclass(cls, enum.Enum):
        return []
    return list(dict.fromkeys(each for member in members(cast(Any, cls)) for each in _classes_in(member.kind)))


def _classes_in(kind: Any) -> Iterator[type]:
    bare, rules = _declared(kind)
    written = next((each.kind for each in rules if isinstance(each, Written)), None)
    if written is not None:
        yield from _classes_in(written)
    elif get_args(bare):
        for each in get_args(bare):
            yield from _classes_in(each)
    elif inspect.isclass(bare) and _is_shown(bare):
        yield bare


def _is_shown(cls: type) -> bool:
    path = Path(inspect.getfile(cls)) if cls.__module__ != "builtins" else Path()
    return path.is_relative_to(ROOT) and (dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum))
