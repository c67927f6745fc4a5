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
)
from trimtab_protocol.messages.codec import NAME, Columns, Most, Range, Text, Wire, WireField, WrittenAs, members
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, code, plain, source_link, table
from trimtab_reference.source import Undocumented, texts_of

CLUSTER = "CLUSTER"
IN_DEPTH = {"intents", "status", "events"}
"""Topics that programs of users may read: what is nested in their messages is shown, too."""
MESSAGES: Mapping[str, tuple[type, ...]] = {
    "reports": (report.Report,),
    "snapshots": (snapshot.Snapshot,),
    "placement": (placement.Placement, placement_parts.PlacementHead, placement_parts.PlacementPart),
    "commands": (commands.Command,),
    "acks": (commands.Ack, host_keys.EnrollmentRequest),
    "handover": (handover.HandoverRecord,),
    "journal": (journal.EntryRecord, demand_history.DemandRecord),
    "intents": (
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
        intents.TakenBack,
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
        "topics with these settings. Messages are JSON; a reader ignores fields that it does not know. Fields are "
        "listed by their keys. What has `?` may be absent or null. Only the status has it where it is its default. "
        "Whole numbers and numbers are 0 or more where nothing else is said; names have letters, digits, `.`, `_` and "
        "`-`, at most 200 characters. What is nested in messages is shown for intents, status and events.",
        "## Topics",
        table(("topic", "written by", "read by", "key", "contents"), map(_topic, settings.values())),
        "## Settings",
        table(
            ("topic", "partitions", "cleanup", "kept for", "largest record", "further"),
            map(_settings, settings.values()),
        ),
        "## Messages",
    ]
    shown: list[type] = []
    for name in settings:
        parts.append(f"### {name}")
        for message in MESSAGES[name]:
            parts += _message(message, shown, nested=name in IN_DEPTH)
    parts += ["## Frames between plug-in and agent", "[Engine plug-ins](engine-plugins.md) has them."]
    return "\n\n".join(parts)


def _topic(settings: TopicSettings) -> tuple[str, ...]:
    name = settings.name.rpartition(".")[2]
    said = RULE.fullmatch(plain(inspect.getdoc(getattr(Topics, name)) or ""))
    if said is None:
        raise Undocumented(f"Topics.{name}: its docstring must read `WRITERS -> READERS. Key: KEY. CONTENTS`")
    return f"[`{settings.name}`](#{name})", said["writers"].lower(), said["readers"], said["key"], said["contents"]


def _settings(settings: TopicSettings) -> tuple[str, ...]:
    keys = dict(settings.configuration)
    largest = amount(int(keys.pop("max.message.bytes")), "BYTES")
    cleanup = keys.pop("cleanup.policy", "delete")
    kept = f"{settings.retention_hours} h" if keys.pop("retention.ms", None) else "the last record of each key"
    further = ", ".join(code(f"{key}={value}") for key, value in keys.items())
    return code(settings.name), str(settings.partitions), cleanup, kept, largest, further


def _message(cls: type, shown: list[type], *, nested: bool) -> Iterator[str]:
    """The fields of a message and, if `nested`, of what is nested in it; each class once on the page."""
    waiting = [cls]
    while waiting:
        each = waiting.pop(0)
        if each in shown:
            if each is cls:
                yield f"`{each.__name__}`: see above."
            continue
        shown.append(each)
        yield from _class(each)
        waiting += _nested(each) if nested else []


def _class(cls: type) -> Iterator[str]:
    path = Path(inspect.getfile(cls))
    yield f"#### {cls.__name__}"
    yield f"{plain(inspect.getdoc(cls) or '')} In {source_link(path)}."
    texts = texts_of(cls)
    if issubclass(cls, enum.Enum):
        yield table(("word", "meaning"), ((code(word.value), texts.get(word.name, "")) for word in cls))
        return
    lines = [_field(member, texts.get(member.name, "")) for member in members(cast(Any, cls))]
    yield "\n".join(["```", *lines, "```"])


def _field(member: WireField, text: str) -> str:
    """Its keys and what JSON has for it; a question mark behind the keys of what may be missing."""
    mark = "" if member.default is dataclasses.MISSING else "?"
    described = _spread(member) if member.spread is not None else _described(member.kind)
    named = "" if member.keys == (member.name,) else f"  ({member.name.replace('_', ' ')})"
    return f"{', '.join(member.keys)}{mark}: {described}{named}" + (f"  # {text}" if text else "")


def _spread(member: WireField) -> str:
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
    if WrittenAs in rule:
        return _described(rule[WrittenAs].kind)
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
    written = next((each.kind for each in rules if isinstance(each, WrittenAs)), None)
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
