"""Which faults are tried at which moments, and why not the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import tests.faults.played.forgeries  # noqa: F401 - enters its faults
from tests.faults.played.faults import FAULTS, Fault
from tests.faults.played.moments import MOMENTS, Moment

ALL = tuple(MOMENTS)
BETWEEN = ("idle", "window")
OF_KILLS = ("standby change", "scale-out", "restore", "first placement")
KILLS = "of these only kills are tried: " + ", ".join(OF_KILLS)

MEANINGFUL: dict[str, tuple[tuple[str, ...], str]] = {
    "worker killed": (ALL, ""),
    "worker stopped": (
        ("idle", "prepare", "prepared", "release", "released", "scale-in"),
        "a window's end and a decision are the agent's and the controller's: to the worker they are idle",
    ),
    "agent killed": (ALL, ""),
    "agent stopped": (
        ("idle", "window", "prepare", "release", "scale-in"),
        "it stays away for longer than these steps last: they come to the same as prepare and release",
    ),
    "controller killed": (ALL, ""),
    "controller stopped": (
        ("idle", "decided", "prepare", "prepared", "release", "released", "scale-in"),
        "the stream, not the controller, closes windows: to the controller that is idle",
    ),
    "Spark killed": (("idle", "window", "scale-in"), "a round that is decided needs no window until it has ended"),
    "Spark stopped": (BETWEEN, "a round that is decided needs no window until it has ended"),
    "solver killed": (("idle", "scale-in"), "it has answered once a round is decided; idle: before the load shifts"),
    "solver never returns": (
        ("idle", "scale-in"),
        "it has answered once a round is decided; idle: before the load shifts",
    ),
    "broker killed": (ALL, ""),
    "broker stopped": (
        ("idle", "decided", "prepare", "release", "released"),
        "for longer than all sessions: the group begins anew, whatever else was under way",
    ),
    "broker away from one host": (
        ("idle", "prepare", "release", "released", "scale-in"),
        "the others are the same to that host: it hears nothing of windows, decisions and acks",
    ),
    "broker away from all": (("idle", "release"), "for longer than all sessions: as a stopped broker"),
    "broker away from controller": (
        ("idle", "decided", "prepared", "scale-in"),
        "between release and took the controller has no part; prepare is its waiting for prepared",
    ),
    "host cut off, taken for lost": (("idle",), "110 s: every round has ended long before"),
    "40 % of the hosts lost": (("idle", "prepare"), "two of five: that one of them moves something is one case"),
    **dict.fromkeys(
        ("coordinator away from one worker", "other broker away from one worker"),
        (("idle", "prepare", "released"), "the worker that has the next thing to do"),
    ),
    "leaders moved": (
        ("idle", "prepare", "release", "released"),
        "who writes next meets it: windows, decisions and acks are written as commands are",
    ),
    "too few copies in sync": (
        ("idle", "prepare", "released"),
        "for longer than sessions: nobody can write, whatever was under way",
    ),
    "worker never ready": (("idle",), "a worker that is not ready takes no part in a round"),
    "disk full under an agent's journal": (("idle",), "key groups are to move to its worker: it meets their commands"),
    "disk full under a worker's store": (("idle",), "the load shifts meanwhile: it meets every step of the round"),
    "agent's clock 1 h ahead": (
        ("idle",),
        "the load shifts meanwhile; a clock that jumps between steps needs a restart",
    ),
    "agent's clock 1 h behind": (
        ("idle",),
        "the load shifts meanwhile; a clock that jumps between steps needs a restart",
    ),
}
MESSAGES = (("idle", "prepare"), "the load shifts meanwhile, so all steps follow; prepare: amid the first of them")
TOPICS = (("idle",), "the load shifts meanwhile, so all steps follow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault at one moment."""

    fault: Fault
    moment: Moment

    @property
    def stage(self) -> str:
        """On a stage of which kind it is played."""
        return self.moment.stage or self.fault.stage

    @property
    def hands_over(self) -> bool:
        """Whether key groups are to be handed over in it."""
        return self.moment.in_round or self.fault.needs_round

    def __str__(self) -> str:
        return f"{self.fault.name}:{self.moment.name}"


def meaning_of(fault: str) -> tuple[tuple[str, ...], str]:
    """The moments at which a fault is tried, and why not the others."""
    given = MESSAGES if fault.startswith(("messages", "host speaks")) else TOPICS
    moments, why_not = MEANINGFUL.get(fault, given)
    return moments, "; ".join(each for each in (why_not, "" if moments == ALL else KILLS) if each)


def all_cells() -> list[Cell]:
    """The whole matrix, in the order of the faults."""
    return [
        Cell(fault=fault, moment=MOMENTS[moment]) for name, fault in FAULTS.items() for moment in meaning_of(name)[0]
    ]


def chosen(patterns: Sequence[str]) -> list[Cell]:
    """The cells that match any of `fault:moment`, of which either part may be left out; all without a pattern.

    A fault is named by its beginning.  Raises ValueError.
    """
    found = []
    for pattern in patterns:
        fault, _, moment = pattern.partition(":")
        matching = [
            cell
            for cell in all_cells()
            if cell.fault.name.startswith(fault) and moment in ("", cell.moment.name) and cell not in found
        ]
        if not matching:
            raise ValueError(f"found {pattern!r}, expected fault:moment of {', '.join(map(str, all_cells()))}")
        found += matching
    return found if patterns else all_cells()
