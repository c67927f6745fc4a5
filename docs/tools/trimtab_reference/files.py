"""docs/reference/files.md: the files that `trimtab solve` reads and writes, as their readers take them.

Each key of an example is in turn left out or given a wrong value; the page says what the reader expects then.
"""

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_controller.cli.solve import SOLVE_SECONDS
from trimtab_models.instances import scheduling, sizing, snapshot, topology
from trimtab_models.instances.reading import BadInstance, instance_in
from trimtab_models.instances.scheduling import SchedulingInstance
from trimtab_models.instances.sizing import SizingInstance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.instances.topology import Topology
from trimtab_models.solving import FAMILIES, SolveMethod, method_named
from trimtab_protocol.messages.codec import members
from trimtab_reference import ROOT
from trimtab_reference.markdown import (
    code,
    codes,
    entries,
    escaped,
    first_sentence,
    plain,
    source_link,
    without_article,
)
from trimtab_reference.source import Undocumented, file_of, texts_of

EXAMPLES = ROOT / "examples" / "instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object of a document: where the first one stands in the example, and the class that it becomes."""

    title: str
    at: tuple[str | int, ...]
    cls: type
    in_full: bool = False
    """Show the whole docstring of the class, not its first sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of instance."""

    title: str
    example: Path
    kind: type
    methods: tuple[str, ...]
    parts: tuple[Part, ...]
    in_full: bool = False
    """Show its keys on the page; of the others the example and the reader's classes do, which must explain each key."""


def _methods(*packages: str) -> tuple[str, ...]:
    return tuple(name for name, module in FAMILIES.items() if module.split(".")[1] in packages)


FORMATS = (
    Format(
        title="Cluster",
        example=EXAMPLES / "cluster.json",
        kind=BalanceInstance,
        methods=_methods("balance", "albic", "elastic"),
        in_full=True,
        parts=(
            Part(title="the document", at=(), cls=snapshot.BalanceInstance),
            Part(title="nodes[]", at=("nodes", 0), cls=snapshot.Node),
            Part(title="key_groups[]", at=("key_groups", 0), cls=snapshot.SnapshotKeyGroup),
            Part(title="flows[]", at=("flows", 0), cls=snapshot.TupleFlow),
            Part(title="budget", at=("budget",), cls=snapshot.MigrationBudget),
            Part(title="options", at=("options",), cls=snapshot.SnapshotOptions, in_full=True),
        ),
    ),
    Format(
        title="Tasks",
        example=EXAMPLES / "tasks.json",
        kind=SchedulingInstance,
        methods=_methods("dyndl"),
        parts=(
            Part(title="the document", at=(), cls=scheduling.SchedulingInstance),
            Part(title="servers[]", at=("servers", 0), cls=scheduling.SchedulingServer),
            Part(title="servers[].g, affine", at=("servers", 0, "g"), cls=scheduling.AffineCost),
            Part(title="servers[].g, table", at=("servers", 1, "g"), cls=scheduling.TableCost),
            Part(title="tasks[]", at=("tasks", 0), cls=scheduling.Task),
        ),
    ),
    Format(
        title="Topology",
        example=EXAMPLES / "topology.json",
        kind=Topology,
        methods=_methods("placement"),
        parts=(
            Part(title="the document", at=(), cls=topology.Topology),
            Part(title="operators[]", at=("operators", 0), cls=topology.ParallelOperator),
            Part(title="edges[]", at=("edges", 0), cls=topology.Edge),
            Part(title="slots[]", at=("slots", 0), cls=topology.Slot),
        ),
    ),
    Format(
        title="Machines",
        example=EXAMPLES / "machines.json",
        kind=SizingInstance,
        methods=_methods("sizing"),
        parts=(
            Part(title="the document", at=(), cls=sizing.SizingInstance),
            Part(title="machines[]", at=("machines", 0), cls=sizing.Machine),
            Part(title="operators[]", at=("operators", 0), cls=sizing.CostedOperator),
            Part(title="edges[]", at=("edges", 0), cls=sizing.UnkeyedEdge),
        ),
    ),
)


def render() -> str:
    """The page."""
    parts = [
        "# Instance and plan files",
        "`trimtab solve METHOD FILE` reads an instance and writes a plan; both are JSON. What is unknown, missing or "
        "wrong is refused with one line that names the JSON path, what was found and what was expected. Ids are "
        "strings, each used once in its list. [Methods](methods.md) says what each method does. Where no keys are "
        "shown here, the linked modules explain them.",
    ]
    for each in FORMATS:
        parts += _format(each)
    return "\n\n".join(parts)


def _format(format_: Format) -> Iterator[str]:
    document = json.loads(format_.example.read_text(encoding="utf-8"))
    instance_in(document, format_.kind)
    reader = file_of(format_.kind.__module__)
    assert reader is not None
    yield f"## {format_.title}"
    modules = [file_of(module) for module in dict.fromkeys(FAMILIES[name] for name in format_.methods)]
    plans = "" if format_.in_full else f" Plans: {', '.join(source_link(path) for path in modules if path)}."
    example = source_link(format_.example)
    yield f"For {codes(format_.methods)}. Example: {example}. Reader: {source_link(reader)}.{plans}"
    for part in format_.parts:
        rows = list(_rows(format_, document, part))  # raises Undocumented
        text = part.cls.__doc__ or ""
        if format_.in_full:
            yield f"### {format_.title}: {part.title}\n\n{plain(text) if part.in_full else first_sentence(text)}"
            yield entries((f"{name} ({type_})", text) for name, type_, text in rows)
    if not format_.in_full:
        return
    shown: dict[str, str] = {}
    for keys, names in _results(format_.methods).items():
        yield f"### {format_.title}: plan of {', '.join(names)}"
        same = [key for key, text in keys if shown.get(key) == text]
        if same:
            yield "As above, and:" if len(same) == len(shown) else f"As above: {codes(same)}."
        if own := [(code(key), text) for key, text in keys if key not in same]:
            yield entries(own)
        shown |= dict(keys)


def _results(names: tuple[str, ...]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """The keys of a plan with their meanings -> the methods whose plans have them."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in names:
        found.setdefault(tuple(result_keys(method_named(name)).items()), []).append(name)
    return found


def result_keys(method: SolveMethod) -> dict[str, str]:
    """The keys of a method's plan, with their meanings."""
    return {**method.result, **(SOLVE_SECONDS if method.timed else {})}


def _rows(format_: Format, document: Mapping[str, Any], part: Part) -> Iterator[tuple[str, str, str]]:
    texts = texts_of(part.cls)
    fields = {member.keys[0]: member for member in members(part.cls)}
    for key in known_keys(format_, document, part):
        text = "Of this format." if key == "version" else texts.get(fields[key].name)
        if not text:
            raise Undocumented(f'{part.cls.__module__}: {part.cls.__name__}: {key} needs a """docstring""" below it')
        default = "" if key == "version" else _default(fields[key].default)
        yield code(key), escaped(_type(format_, document, part, key)) + default, text


def known_keys(format_: Format, document: Mapping[str, Any], part: Part) -> list[str]:
    """The keys of the example, in their order; every key of the class must be among them."""
    keys = list(_object(document, part))
    if missing := {member.keys[0] for member in members(part.cls)} - set(keys):
        raise Undocumented(f"{format_.example}: {part.title} does not show {sorted(missing)}")
    return keys


def _type(format_: Format, document: Mapping[str, Any], part: Part, key: str) -> str:
    error = _refusal(format_, document, part, key, object())
    assert error is not None, key
    if error.expected != "an array":
        return without_article(error.expected)
    value = _object(document, part)[key]
    if not value or isinstance(value[0], dict):
        return "list of objects"
    element = _refusal(format_, document, part, key, [object()])
    assert element is not None, key
    return f"list; each {element.expected}"


def _default(default: object) -> str:
    match default:
        case bool(value):
            return f"; default {code(str(value).lower())}"
        case float() | int() as value:
            return f"; default {code(f'{value:g}')}"
        case dataclasses.MISSING:
            return ""
        case _:
            return "; optional"


def _refusal(format_: Format, document: Mapping[str, Any], part: Part, key: str, value: object) -> BadInstance | None:
    """What the reader says when the key has this value; None: it takes it."""
    changed = copy.deepcopy(dict(document))
    _object(changed, part)[key] = value
    try:
        instance_in(changed, format_.kind)
    except BadInstance as error:
        return error
    return None


def _object(document: Mapping[str, Any], part: Part) -> dict[str, Any]:
    found: Any = document
    for step in part.at:
        found = found[step]
    assert isinstance(found, dict)
    return found
