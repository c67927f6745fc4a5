"""docs/reference/configuration.md: the configuration files, as their readers take them.

Meanings are the comments of the sample files.  Types, ranges, defaults and what is required come from the readers: each
key of a sample in turn is left out or given a wrong value, and the page says what the reader says.
"""

import copy
import dataclasses
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_agent.configuration import read_configuration
from trimtab_console.configuration import decode as read_console
from trimtab_controller.cli import BLAS_THREADS
from trimtab_controller.cli.parsers import CONFIG_VARIABLE
from trimtab_controller.configuration import decode
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_reference import ROOT
from trimtab_reference.markdown import ENDLESS, NONE, code, entries, source_link, without_article
from trimtab_reference.source import Undocumented

SHIPPED = ROOT / "deploy" / "samples"
Read = Callable[[Mapping[str, Any]], object]
SAMPLES: Mapping[str, tuple[Path, Read]] = {
    "controller.toml": (SHIPPED / "controller.toml", decode),
    "agent.toml": (SHIPPED / "agent.toml", read_configuration),
    "console.toml": (SHIPPED / "console.toml", read_console),
}
COMMENTED = re.compile(r'^# (?=\[|"?[\w.-]+"? = )')
SECTION = re.compile(r"\[{1,2}([\w.]+)\]{1,2}\s*(?:# (.*))?")
KEY = re.compile(r"""("?)([\w.-]+)\1 = (.*?)(?:\s+# (.*))?""")

OR_MORE = " or more"
NAME = "name of letters, digits, '.', '_', '-'"
"""How the readers describe a name; the page says it once."""
ENVIRONMENT = (
    "## Environment variables",
    f"`trimtab` sets {code(BLAS_THREADS)} to 1 for itself and the processes that it starts, but for `trimtab sandbox` "
    f"and `trimtab console`. What you set yourself stays, as does {code('OPENBLAS_NUM_THREADS')}.",
    f"{code(CONFIG_VARIABLE)} names the controller.toml of operators' commands without `--config`: "
    "`export TRIMTAB_CONFIG=/etc/trimtab/controller.toml`.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A line of a sample: the path of its key, and what the comment says."""

    section: str
    name: str
    text: str

    @property
    def path(self) -> str:
        """As the reader's messages name it."""
        return f"{self.section}.{self.name}"


def render() -> str:
    """The page."""
    parts = [
        "# Configuration",
        "The files are TOML. They are read strictly: a key that is unknown, missing, of another type or out of its "
        "range is refused with one line that names the key, what was found and what was expected. "
        f"A section is optional unless it is marked *Required*. A *name* has {NAME.removeprefix('name of ')}. "
        "`trimtab-agent check --config FILE` shows what the agent's file means on its host. Keys are shown with their "
        "defaults, and in brackets with their types and ranges.",
    ]
    shown: set[str] = set()
    for name, (path, read) in SAMPLES.items():
        own, others = list[str](), list[str]()
        for section in sections(path.read_text(encoding="utf-8"), read):
            head, _, keys = section.partition("\n\n- ")
            title = head.partition("\n")[0]
            (others if keys in shown or title in shown else own).append(section)
            shown |= {keys or title}
        same = f" {_listed_titles(others)} are those of controller.toml." if others else ""
        parts += [f"## {name}", f"A sample with every key: {source_link(path)}.{same}", *own]
    return "\n\n".join([*parts, *ENVIRONMENT]).replace(f"({NAME}", "(name")


def _listed_titles(of: list[str]) -> str:
    return ", ".join(code(section.partition("\n")[0].removeprefix("### ")) for section in of)


def sections(text: str, read: Read) -> Iterator[str]:
    """A section of the page for each section of a sample."""
    titles, keys = parse_sample(text)
    with tempfile.TemporaryDirectory() as folder:
        document = whole(text, Path(folder))
        read(document)
        for section, title in titles.items():
            rows = [_entry(read, document, key) for key in keys if key.section == section]
            need = "Required. " if _is_required(read, document, section) else ""
            shown = section.replace("workers.w0", "workers.NAME")
            shown = f"[{shown}]" if isinstance(_found(document, section), list) else shown
            yield f"### [{shown}]\n\n{need}{_sentence(title)}\n\n{entries(rows)}".rstrip()


def parse_sample(text: str) -> tuple[dict[str, str], list[Key]]:
    """The sections with what the comment behind each says, and the keys with theirs."""
    titles: dict[str, str] = {}
    keys: list[Key] = []
    section, of_key = "", False
    for line in (COMMENTED.sub("", line) for line in text.splitlines()):
        if found := SECTION.fullmatch(line):
            section, of_key = found[1], False
            titles[section] = found[2] or ""
        elif found := KEY.fullmatch(line):
            if of_key := not found[1]:  # a quoted key stands for any key of its table
                keys.append(Key(section=section, name=found[2], text=found[4] or ""))
        elif section and (more := re.fullmatch(r"#?\s+# (.*)", line)):
            if of_key:
                keys[-1] = dataclasses.replace(keys[-1], text=f"{keys[-1].text} {more[1]}")
            else:
                titles[section] += f" {more[1]}"
    return titles, keys


def whole(text: str, folder: Path) -> dict[str, Any]:
    """The sample with everything that is commented out; the private files that it names exist in `folder`."""
    document = tomllib.loads("\n".join(COMMENTED.sub("", line) for line in text.splitlines()))
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("secret")
    for section, name in (("tls", "key"), ("sasl", "password_file")):
        if name in document["kafka"].get(section, {}):
            document["kafka"][section][name] = str(secret)
    return document


def _entry(read: Read, document: Mapping[str, Any], key: Key) -> tuple[str, str]:
    """The key with its default and its type, and its meaning."""
    if not key.text:
        raise Undocumented(f"{key.path} has no comment in its sample file")
    default = _default(read, document, key)
    kind, unit = _type(read, document, key), _unit(key)
    type_ = f"{kind.removesuffix(OR_MORE)} {unit}".rstrip() + OR_MORE * kind.endswith(OR_MORE)
    text = _sentence(key.text)
    if code(key.text.split(" ", 1)[0].rstrip(",;")) in type_:
        text = f"{key.text[:1]}{text[1:]}"  # a choice stays as it is typed
    if default.startswith("`"):
        return f"{code(f'{key.name} = {default[1:-1]}')} ({type_})", text
    need = "" if default == NONE else f", {default}"
    return f"{code(key.name)} ({type_}{need})", text


def _unit(key: Key) -> str:
    if key.name.endswith("_bytes_s"):
        return "bytes/s"
    if key.name.endswith("_s"):
        return "s"
    if key.name.endswith("_bytes"):
        return "bytes"
    found = re.match(r"(pp|cores)\b", key.text)
    return found[1] if found else ""


def _sentence(text: str) -> str:
    text = re.sub(r"^(?:pp|cores)[:;] ", "", text.strip())
    if text.split(" ", 1)[0].rstrip(",;").isalpha():
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else text + "."


def _type(read: Read, document: Mapping[str, Any], key: Key) -> str:
    """What the reader expects: first of a value of no type, then of one that is out of every range."""
    kind = _expected(read, document, key, object())
    trials: dict[str, tuple[object, ...]] = {
        "a number": (-1e300, 1e300),
        "a whole number": (-(2**80), 2**80),
        "a string": ("\n", "x" * 100_000),
    }
    for trial in trials.get(kind or "", ()):
        expected = _expected(read, document, key, trial)
        if expected and kind == "a string" and not expected[0].isdigit() and "readable file" not in expected:
            return _listed(expected)
        if expected and kind != "a string":
            return f"{'whole, ' if kind == 'a whole number' else ''}{_bounds(expected)}"
    words = {"an array": "array", "an object": "table", "true or false": "boolean"}
    return words.get(kind or "", without_article(kind or ""))


def _listed(expected: str) -> str:
    """`one of a, b` with its words as they are written."""
    head, _, words = expected.partition("one of ")
    return f"one of {', '.join(map(code, words.split(', ')))}" if words and not head else without_article(expected)


def _bounds(expected: str) -> str:
    low, high = re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", expected)[-2:]
    return f"{_digits(low)}–{_digits(high)}" if float(high) < ENDLESS else f"{low}{OR_MORE}"


def _digits(number: str) -> str:
    """A whole number without an exponent."""
    return f"{float(number):,.0f}" if "e+" in number else number


def _expected(read: Read, document: Mapping[str, Any], key: Key, value: object) -> str | None:
    """What the reader says that it expects when the key has this value; None: it takes it."""
    changed = copy.deepcopy(dict(document))
    _section(changed, key.section)[key.name] = value
    try:
        read(changed)
    except BadMessage as error:
        if error.path.replace("[0]", "") != key.path:
            raise
        return error.expected
    return None


def _default(read: Read, document: Mapping[str, Any], key: Key) -> str:
    """The value without the key, or that it is required."""
    changed = copy.deepcopy(dict(document))
    del _section(changed, key.section)[key.name]
    try:
        decoded = read(changed)
    except BadMessage as error:
        if error.fault is not Fault.MISSING:
            raise
        return "required" if error.path.replace("[0]", "") == key.path else error.expected
    found = [(path, value) for path, value in _members(decoded) if path[-1] == key.name and "apps" not in path[1:]]
    own = [(path, value) for path, value in found if key.section in path]  # two sections may have a key of one name
    values = [value for _, value in own or found]
    if len({repr(value) for value in values}) != 1:
        raise Undocumented(f"{key.path}: expected one field of this name in the configuration, found {values}")
    return _shown(values[0])


def _members(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The fields of a configuration with their paths, at any depth."""
    if isinstance(value, Mapping | tuple):
        for member in value.values() if isinstance(value, Mapping) else value:
            yield from _members(member, path)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            member = getattr(value, field.name)
            yield (*path, field.name), member
            yield from _members(member, (*path, field.name))


def _shown(value: object) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return code(str(value).lower())
        case str():
            return code(f'"{value}"')
        case int() | float():
            return code(str(value))
        case _ if not value:
            return NONE
        case _:
            raise TypeError(f"a default of type {type(value).__name__}")


def _is_required(read: Read, document: Mapping[str, Any], section: str) -> bool:
    changed = copy.deepcopy(dict(document))
    *above, name = section.split(".")
    del (_section(changed, ".".join(above)) if above else changed)[name]
    try:
        read(changed)
    except BadMessage:
        return True
    return False


def _section(document: dict[str, Any], section: str) -> dict[str, Any]:
    """The table; the first one of an array of tables."""
    found = _found(document, section)
    table_of_it: dict[str, Any] = found[0] if isinstance(found, list) else found
    return table_of_it


def _found(document: Mapping[str, Any], section: str) -> Any:
    found: Any = document
    for name in section.split("."):
        found = found[name]
    return found
