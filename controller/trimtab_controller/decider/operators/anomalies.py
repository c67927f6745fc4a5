"""The configuration's [anomalies]: what becomes of each kind of trouble, in one table.  Pure.

Each word stands for a setting of the section that mends this kind: `fix` mends it, `check` only reports it or proposes
what to do, `ignore` does neither.  These sections have more to say, such as how long something is waited for; where one
of them says something else than the table, that is an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trimtab_protocol.messages.decode import BadMessage, Fault, Fields

MAX_APPS = 10_000
"""Apps with words of their own."""
ALWAYS = "* * * * *"
"""The cron expression of every minute."""


class Word(StrEnum):
    """What becomes of a kind of trouble."""

    FIX = "fix"
    CHECK = "check"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What a word stands for: the key of a section, its value, and the values besides that mean the same."""

    section: str
    key: str
    value: Any
    same: tuple[Any, ...] = ()


_KINDS: Mapping[str, Mapping[Word, _Setting]] = {
    "uneven_load": {
        Word.FIX: _Setting(section="plans", key="mode", value="act"),
        Word.CHECK: _Setting(section="plans", key="mode", value="approve"),
        Word.IGNORE: _Setting(section="plans", key="freeze", value=[ALWAYS]),
    },
    "wrong_size": {
        Word.FIX: _Setting(section="scaling", key="mode", value="act"),
        Word.CHECK: _Setting(section="scaling", key="mode", value="advise"),
        Word.IGNORE: _Setting(section="scaling", key="mode", value="off"),
    },
    "daily_peak": {
        Word.FIX: _Setting(section="forecast", key="mode", value="act"),
        Word.CHECK: _Setting(section="forecast", key="mode", value="advise"),
        Word.IGNORE: _Setting(section="forecast", key="mode", value="off"),
    },
    "suffering_job": {
        Word.FIX: _Setting(section="guard", key="mode", value="roll-back", same=("stop",)),
        Word.CHECK: _Setting(section="guard", key="mode", value="check"),
        Word.IGNORE: _Setting(section="guard", key="mode", value="off"),
    },
}
_TOLD: Mapping[str, str] = {
    "uneven_load": "uneven load",
    "wrong_size": "too few or too many workers",
    "daily_peak": "daily peaks ahead",
    "suffering_job": "plans under which a job suffers",
}
_DOES: Mapping[Word, str] = {Word.FIX: "mends", Word.CHECK: "only reports", Word.IGNORE: "leaves alone"}
_MEANS: Mapping[str, Word] = {"dry-run": Word.CHECK, "stop": Word.FIX}
"""Values of those keys that no word stands for, and the word that comes next to them."""
OF_APPS = ("uneven_load", "wrong_size")
"""The kinds for which an app may have a word of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomalies:
    """What becomes of each kind of trouble, by all that the configuration says; apps may have words of their own."""

    uneven_load: Word = Word.FIX
    wrong_size: Word = Word.CHECK
    daily_peak: Word = Word.IGNORE
    suffering_job: Word = Word.FIX

    @property
    def text(self) -> str:
        """For a log: what an acting controller does about which kind."""
        kinds = {word: [told for kind, told in _TOLD.items() if getattr(self, kind) is word] for word in Word}
        return "; ".join(f"{_DOES[word]} {', '.join(told)}" for word, told in kinds.items() if told)


def anomalies_of(*, plans: str, freeze: Sequence[str], scaling: str, forecast: str, guard: str) -> Anomalies:
    """The words for these modes; `freeze` = when no plan for balance begins."""
    uneven = Word.IGNORE if ALWAYS in freeze else _word("uneven_load", plans)
    return Anomalies(
        uneven_load=uneven,
        wrong_size=_word("wrong_size", scaling),
        daily_peak=_word("daily_peak", forecast),
        suffering_job=_word("suffering_job", guard),
    )


def _word(kind: str, value: str) -> Word:
    words = {setting.value: word for word, setting in _KINDS[kind].items() if setting.key == "mode"}
    return words.get(value) or _MEANS[value]


def with_anomalies(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[BadMessage]]:
    """The document with the table's words as settings of the sections that they stand for, and what contradicts them.

    The sections' own readers come first: what they refuse contradicts nothing.  Raises BadMessage.
    """
    found = dict(document)
    if "anomalies" not in found:
        return found, []
    table = found.pop("anomalies")
    if not isinstance(table, dict):
        raise BadMessage(Fault.TYPE, "anomalies", table, "a table")
    fields = Fields(table, "anomalies")
    apps = list(fields.members("apps", limit=MAX_APPS)) if fields.has("apps") else []
    against = list(_apply(found, fields, _KINDS, ()))
    for app, at, value in apps:
        if not isinstance(value, dict):
            raise BadMessage(Fault.TYPE, at, value, "a table")
        against += _apply(found, Fields(value, at), OF_APPS, ("apps", app))
    return found, against


def _apply(
    document: dict[str, Any], fields: Fields, kinds: Iterable[str], where: tuple[str, ...]
) -> Iterator[BadMessage]:
    words = {kind: fields.choice(kind, Word) for kind in kinds if fields.has(kind)}
    fields.done()
    for kind, word in words.items():
        setting = _KINDS[kind][word]
        present = _set(document, setting, where)
        if present not in (setting.value, *setting.same):
            path = ".".join((setting.section, *where, setting.key))
            expected = f"what {path} = {present!r} means, or this key alone"
            yield BadMessage(Fault.RANGE, fields.at(kind), word, expected)


def _set(document: dict[str, Any], setting: _Setting, where: tuple[str, ...]) -> Any:
    """Make the setting unless it is there, and return what is there then."""
    table = document
    for name in (setting.section, *where):
        inner = table.get(name, {})
        if isinstance(inner, str) and where:  # the short form of an app's mode
            if setting.key == "mode":
                return inner
            inner = {"mode": inner}
        if not isinstance(inner, dict):
            return inner
        table[name] = table = dict(inner)
    return table.setdefault(setting.key, setting.value)
