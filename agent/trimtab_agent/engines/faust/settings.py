"""Limits of the plug-in's steering part, with units."""

from dataclasses import dataclass
from enum import StrEnum


class InPlace(StrEnum):
    """Whether a worker rejoins in place."""

    OFF = "off"
    """It joins as stock Faust does, and no group in place takes it."""
    LEAVE = "leave"
    """A group with this worker rebalances as stock Faust does.  Then workers that are off, or older, may join it."""
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringSettings:
    """How long each step may take before it is abandoned.  An abandoned step leaves a safe state."""

    fetch_max_wait_ms: int = 200
    """Long poll of the worker's consumer.  Faust's hard-coded 1500 ms makes up most of the pause of a rebalance."""
    fetch_min_bytes: int = 1
    """The broker answers a fetch when it has this many bytes, or after `fetch_max_wait_ms`.  1: every record at once.
    A larger value saves network rounds, and so CPU, but each record waits longer.
    """
    fetch_round_s: float = 0.25
    """How long one fetch of the drain loop may last.  A rebalance waits at most this long for the fetch in flight."""
    placement_load_limit_s: float = 10.0
    """How long the first join waits for the placement topic to be read."""
    topics_limit_s: float = 10.0
    """How long a worker that is about to join the group waits until the broker knows all its topics."""
    assignment_metadata_limit_s: float = 5.0
    """How long the group leader waits in a rebalance for members' topics that its client does not know yet."""
    assignment_placement_limit_s: float = 3.0
    """How long the group leader waits in a rebalance for a placement that a member has read and it has not."""
    placement_wait_s: float = 3.0
    """How long a release waits until the placement names its target as the owner."""
    prepare_limit_s: float = 60.0
    """How long a standby may take to catch up."""
    prepared_lag_records: int = 50
    """A standby at most this many records behind the changelogs' current ends counts as prepared."""
    prepared_lag_s: float = 0.1
    """So does one that needs at most so long for what it is behind, at the rate at which this worker reads."""
    drain_limit_s: float = 10.0
    """How long begun events of released key groups may take to finish."""
    commit_limit_s: float = 5.0
    """How long the commit that proves membership may take, and before it the writing of all outputs and state."""
    catch_up_limit_s: float = 2.5
    """How long the target may take to apply the changelog's last records; less than `took_limit_s`, since it gives the
    key groups back after that."""
    took_limit_s: float = 4.0
    """How long the source waits for the target's `took` record before it asks for a rebalance."""
    in_place: InPlace = InPlace.OFF
    """Whether the worker goes on with its key groups while its consumer group rebalances, see
    `docs/concepts/how-it-moves.md`.
    """

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "in_place" and not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected a number above 0")
