"""The guard as values: its settings, the configuration's [guard], and what it remembers of a plan that it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.codec import MAX_INTEGER, Most, Name, Range, Text, Wire
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.names import AppId, KeyGroupName, WorkerId
from trimtab_protocol.messages.placement import MAX_MOVING

GUARDED = frozenset({PlanReason.LOAD_DISTANCE, PlanReason.COLLOCATION})
"""The plans that the guard ends: those that the job can do without.  All others it only slows."""
LONGEST_BACK_OFF_S = 86_400.0


class GuardMode(StrEnum):
    """What the guard does when a job suffers from a plan although its pace is at one hand-over at a time."""

    OFF = "off"
    STOP = "stop"  # it ends the plan; what has moved stays
    ROLL_BACK = "roll-back"  # and moves back what made a worker fall behind


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """The configuration's [guard].

    The guard ends a plan after `windows` windows in a row in which the job fell behind, or as many long pauses in a
    row.  After that the app gets no plan for balance for `back_off_s` seconds, after each further one twice as long.
    """

    mode: GuardMode = GuardMode.ROLL_BACK
    windows: int = 3
    back_off_s: float = 600.0

    def back_off(self, times: int) -> float:
        """Seconds until the next plan, when the guard has ended so many plans in a row."""
        return min(LONGEST_BACK_OFF_S, self.back_off_s * 2.0 ** min(times - 1, 20))


def read_guard(fields: Fields) -> GuardSettings:
    """The section of controller.toml; a key that is missing has its default.  Raises BadMessage."""
    found: dict[str, Any] = {}
    if fields.has("mode"):
        found["mode"] = fields.choice("mode", GuardMode)
    if fields.has("windows"):
        found["windows"] = fields.integer("windows", low=1, high=1000)
    if fields.has("back_off_s"):
        found["back_off_s"] = fields.number("back_off_s", low=1.0, high=LONGEST_BACK_OFF_S)
    fields.done()
    return replace(GuardSettings(), **found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A key group that the plan has moved."""

    WIRE: ClassVar = Wire(row=True)

    key_group: KeyGroupName
    source: WorkerId
    target: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStop:
    """The guard ended this plan of an app at `at`; the app gets no plan for balance before `until` (epoch seconds).

    `times` = how many plans in a row it has ended.  `lags_s` = how far the workers of its moves were behind when the
    plan began, as far as known.  `moves` = what may have to be moved back.  `back_by` None: no whole window has shown
    yet which of them; later: those that are left are moved back, if that begins until then (epoch seconds).
    """

    app: AppId
    plan: Name
    at: float
    until: float
    detail: Annotated[str, Text(4000)]
    times: Annotated[int, Range(1, MAX_INTEGER)] = 1
    lags_s: Annotated[Mapping[WorkerId, Annotated[float, Range(0.0, 1e12)]], Most(2 * MAX_MOVING)] = field(
        default_factory=dict
    )
    moves: Annotated[tuple[Moved, ...], Most(MAX_MOVING)] = ()
    back_by: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lags_s", MappingProxyType(dict(self.lags_s)))

    def to_move_back(self, now: float) -> tuple[Moved, ...]:
        """What is to be moved back now."""
        return self.moves if self.back_by is not None and now <= self.back_by else ()
