"""The host itself in a report: what it has and what is used of it.  None means unknown."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from trimtab_protocol.messages.codec import Key, Name, Range

MAX_SPEED = 1_000.0
"""Speed of a core, relative to one of speed 1."""


class Basis(StrEnum):
    """Where the limits of a host's CPU figures come from."""

    CONFIG = "config"  # `cores` in agent.toml
    CGROUP = "cgroup"  # the limit of the agent's container
    HOST = "host"  # the whole machine


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The host (or container) in one interval.

    `cpu_s` = CPU seconds used; `cores` = cores it may use; `basis` = where that limit comes from; `received_bytes`,
    `sent_bytes` = network bytes in the interval; `memory_bytes` of `memory_limit_bytes` in use at its end;
    `link_bytes_s` = bytes per second that its network can carry each way.  Hosts of one `type` are taken to need the
    same CPU for the same work; `speed` = measured speed of one core, relative to one of speed 1.  `disk_free_bytes` of
    `disk_total_bytes` (used and free) are free on the disk of the workers' state: of several disks, on the one with the
    least free.  Hosts of one `zone` may fail together.  `ended`: the agent was told to end, and this is its last word.
    """

    cpu_s: Annotated[float | None, Key("cpu")]
    cores: Annotated[float | None, Key("cor")]
    basis: Annotated[Basis, Key("b")]
    received_bytes: Annotated[int | None, Key("rx")] = None
    sent_bytes: Annotated[int | None, Key("tx")] = None
    memory_bytes: Annotated[int | None, Key("mem")] = None
    memory_limit_bytes: Annotated[int | None, Key("lim")] = None
    link_bytes_s: Annotated[float | None, Key("lnk")] = None
    type: Annotated[Name | None, Key("typ")] = None
    speed: Annotated[float | None, Key("spd"), Range(0.001, MAX_SPEED)] = None
    disk_total_bytes: Annotated[int | None, Key("dkt")] = None
    disk_free_bytes: Annotated[int | None, Key("dkf")] = None
    zone: Annotated[Name | None, Key("zon")] = None
    ended: Annotated[bool, Key("bye")] = False
