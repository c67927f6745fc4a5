"""docs/reference/topics.md: the topics of a cluster, who writes and reads them, and the messages on them."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

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
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, code, plain, source_link, table
from trimtab_reference.source import Undocumented, texts_of, types_of

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
    "journal": (journal.JournalEntry, demand_history.DemandRecord),
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
        taken_back.TakenBack,
    ),
    "status": (status.Status,),
    "events": (events.Event, events.EventKind),
    "keys": (host_keys.HostKeys,),
}
MODULES: tuple[ModuleType, ...] = (
    commands,
    demand_history,
    events,
    handover,
    host_keys,
    intents,
    journal,
    placement,
    placement_parts,
    report,
    snapshot,
    status,
    taken_back,
)
RULE = re.compile(r"(?P<writers>.+) -> (?P<readers>[^.]+)\. Key: (?P<key>[^.]+)\. (?P<contents>.+)", re.DOTALL)
"""The docstring of every topic in `Topics`."""


def render() -> str:
    """The page."""
    settings = {each.name.rpartition(".")[2]: each for each in topic_settings(Topics(CLUSTER))}
    parts = [
        "# Topics and messages",
        f"`{CLUSTER}` is the name in `[controller] cluster` and `[agent] cluster`. The controller creates missing "
        "topics with these settings. Messages are JSON; a reader ignores fields that it does not know. Fields "
        "are listed as the code has them, with `?` where they may be missing; what is nested in them is shown for "
        "intents, status and events. The JSON form is what `document()` or the module's encoder writes.",
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


def _message(cls: type, shown: list[type], *, nested: bool = True) -> Iterator[str]:
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
    assert dataclasses.is_dataclass(cls)
    types = types_of(cls)
    lines = [_field(each, types[each.name], texts.get(each.name, "")) for each in dataclasses.fields(cls)]
    yield "\n".join(["```", *lines, "```"])


def _field(field: "dataclasses.Field[object]", type_: str, text: str) -> str:
    """As the code has it; a question mark behind the name of what may be missing."""
    missing = dataclasses.MISSING
    needed = field.default is missing and field.default_factory is missing and "None" not in type_
    mark, type_ = "" if needed else "?", type_.removesuffix(" | None")
    return f"{field.name}{mark}: {type_}" + (f"  # {text}" if text else "")


def _nested(cls: type) -> list[type]:
    """The classes of ours that the fields of a message name."""
    if issubclass(cls, enum.Enum):
        return []
    words = [word for type_ in types_of(cls).values() for word in re.findall(r"[A-Z]\w+", type_)]
    found = [getattr(module, word) for word in words for module in MODULES if hasattr(module, word)]
    return list(dict.fromkeys(each for each in found if inspect.isclass(each) and _is_shown(each)))


def _is_shown(cls: type) -> bool:
    path = Path(inspect.getfile(cls))
    return path.is_relative_to(ROOT) and (dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum))
