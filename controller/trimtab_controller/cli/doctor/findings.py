"""The findings of a check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.wording import first_few

SHOWN_NAMES = 8


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    NOT_CHECKED = "not checked"


class Check(StrEnum):
    """The checks, in their order."""

    CONFIGURATION = "configuration"
    JAVA = "java"
    JARS = "jars"
    BROKER = "broker"
    RIGHTS = "rights"
    TOPICS = "topics"
    CLOCKS = "clocks"
    AGENTS = "agents"
    CHANGELOGS = "changelogs"
    SIGNING = "signing"
    CHECKPOINT = "checkpoint"
    METRICS = "metrics"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line for the operator; `remedy` says what to do, and is empty if nothing is needed."""

    check: Check
    level: Level
    text: str
    remedy: str = ""


def ok(check: Check, text: str) -> Finding:
    """A finding without a problem."""
    return Finding(check=check, level=Level.OK, text=text)


def warning(check: Check, text: str, remedy: str) -> Finding:
    """A finding that works, but needs a look."""
    return Finding(check=check, level=Level.WARNING, text=text, remedy=remedy)


def fault(check: Check, text: str, remedy: str) -> Finding:
    """A finding that must be fixed."""
    return Finding(check=check, level=Level.FAULT, text=text, remedy=remedy)


def not_checked(check: Check, text: str, remedy: str = "") -> Finding:
    """A check that could not be made, and why."""
    return Finding(check=check, level=Level.NOT_CHECKED, text=text, remedy=remedy)


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    return first_few(sorted(names), most=SHOWN_NAMES)
