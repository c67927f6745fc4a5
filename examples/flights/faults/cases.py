"""What is killed, and when."""

from dataclasses import dataclass
from enum import StrEnum

from trimtab_models.messages.commands import CommandKind


class Fault(StrEnum):
    """What is killed with kill -9, and started again."""

    WORKER = "worker"
    AGENT = "agent"
    CONTROLLER = "controller"  # with its Spark
    BROKER = "broker"


class Moment(StrEnum):
    """When: between rounds, or as soon as a command of a round is on its way."""

    CALM = "calm"
    PREPARE = "prepare"
    RELEASE = "release"

    @property
    def command(self) -> CommandKind | None:
        """The command that is waited for."""
        return None if self is Moment.CALM else CommandKind(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault at one moment; in a round the worker or agent that has to obey the command is hit."""

    fault: Fault
    moment: Moment

    def __str__(self) -> str:
        return f"{self.fault}@{self.moment}"


ALL = tuple(Case(fault=fault, moment=moment) for fault in reversed(Fault) for moment in Moment)
"""A worker's death last: nothing before it may be doubled at all."""


def parse_case(text: str) -> Case:
    """`worker@release` and the like.  Raises ValueError that names what is possible."""
    found = {str(case): case for case in ALL}.get(text)
    if found is None:
        raise ValueError(f"found {text!r}, expected one of {', '.join(map(str, ALL))}")
    return found
