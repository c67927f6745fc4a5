"""docs/reference/topics.md: the topics of a cluster, who writes and reads them, and the messages about events."""

import dataclasses
import enum
import inspect
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, NewType, Union, cast, get_args, get_origin

from trimtab_controller.decider.memory import forecasts as demand_history
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
from trimtab_reference.markdown import amount, code, link, plain, table
from trimtab_reference.source import Undocumented, texts_of

CLUSTER = "CLUSTER"
MESSAGES: Mapping[str, tuple[ModuleType, ...]] = {
    "reports": (report,),
    "snapshots": (snapshot,),
    "placement": (placement, placement_parts),
    "commands": (commands,),
    "acks": (commands, host_keys),
    "handover": (handover,),
    "journal": (journal, demand_history),
    "intents": (intents,),
    "status": (status,),
    "events": (events,),
    "keys": (host_keys,),
}
"""Topic -> the modules with the messages on it."""
EVENTS = (events.Event, events.EventKind)
"""What programs of users may read: the fields of these messages are shown."""
RULE = re.compile(r"(?P<writers>.+) -> (?P<readers>[^.]+)\. Key: (?P<key>[^.]+)\. (?P<contents>.+)", re.DOTALL)
"""The docstring of every topic in `Topics`."""


def render() -> str:
    """The page."""
    settings = {each.name.rpartition(".")[2]: each for each in topic_settings(Topics(CLUSTER))}
    parts = [
        "# Topics and messages",
        f"`{CLUSTER}` is the name in `[controller] cluster` and `[agent] cluster`. The controller creates missing "
        "topics. Messages are JSON; a reader ignores fields that it does not know. The modules describe their fields. "
        "[Engine plug-ins](engine-plugins.md) has what a plug-in reads or writes; for your own programs the "
        "[HTTP API](../guides/console.md#api) has the values of the status.",
        "## Topics",
        table(("topic", "written by", "read by", "key", "contents", "messages"), map(_topic, settings.values())),
        "## Settings",
        f"`max.message.bytes` is {' or '.join({_largest(each) for each in settings.values()})}. *Compacted* stands for "
        "`cleanup.policy=compact`, a time for `retention.ms`.",
        table(("topic", "partitions", "kept", "further"), map(_settings, settings.values())),
        "## Events",
        "Your programs may read this topic. A field with `?` may be absent or null. Numbers are 0 or more unless "
        "stated otherwise. Names have letters, digits, `.`, `_` and `-`, at most 200 characters.",
    ]
    shown: list[type] = []
    for message in EVENTS:
        parts += _message(message, shown)
    return "\n\n".join(parts)


def _topic(settings: TopicSettings) -> tuple[str, ...]:
    name = settings.name.rpartition(".")[2]
    said = RULE.fullmatch(plain(inspect.getdoc(getattr(Topics, name)) or ""))
    if said is None:
        raise Undocumented(f"Topics.{name}: its docstring must read `WRITERS -> READERS. Key: KEY. CONTENTS`")
    modules = ", ".join(link(code(path.stem), path) for path in map(_path, MESSAGES[name]))
    return code(settings.name), said["writers"].lower(), said["readers"], said["key"], said["contents"], modules


def _path(module: ModuleType) -> Path:
    return Path(inspect.getfile(module))


def _largest(settings: TopicSettings) -> str:
    return amount(int(dict(settings.configuration)["max.message.bytes"]), "BYTES")


def _settings(settings: TopicSettings) -> tuple[str, ...]:
    keys = dict(settings.configuration)
    del keys["max.message.bytes"]  # stands above the table
    cleanup = keys.pop("cleanup.policy", "delete")
    kept = f"{settings.retention_hours} h" if keys.pop("retention.ms", None) else f"{cleanup}ed"
    further = ", ".join(code(f"{key}={value}") for key, value in keys.items())
    return code(settings.name), str(settings.partitions), kept, further


def _message(cls: type, shown: list[type]) -> Iterator[str]:
    """The fields of a message and of what is nested in it; each class once on the page."""
    waiting = [cls]
    while waiting:
        each = waiting.pop(0)
        if each not in shown:
            shown.append(each)
            yield from _class(each)
            waiting += _nested(each)


def _class(cls: type) -> Iterator[str]:
    yield f"### {cls.__name__}"
    yield plain(inspect.getdoc(cls) or "")
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
