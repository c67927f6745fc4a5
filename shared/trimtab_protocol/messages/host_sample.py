"""The host itself in a report: what it has and what is used of it.  None means unknown."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trimtab_protocol.messages.decode import Fields

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

    cpu_s: float | None
    cores: float | None
    basis: Basis
    received_bytes: int | None = None
    sent_bytes: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    link_bytes_s: float | None = None
    type: str | None = None
    speed: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: str | None = None
    ended: bool = False

    def document(self) -> dict[str, Any]:
        """Wire keys: cpu, cor, b, rx, tx, mem, lim; maybe lnk, typ, spd, dkt, dkf, zon, bye."""
        later = {
            "lnk": self.link_bytes_s,
            "typ": self.type,
            "spd": self.speed,
            "dkt": self.disk_total_bytes,
            "dkf": self.disk_free_bytes,
            "zon": self.zone,
            "bye": self.ended or None,
        }
        return self._first_document() | {key: value for key, value in later.items() if value is not None}

    def _first_document(self) -> dict[str, Any]:
        return {
            "cpu": self.cpu_s,
            "cor": self.cores,
            "b": self.basis,
            "rx": self.received_bytes,
            "tx": self.sent_bytes,
            "mem": self.memory_bytes,
            "lim": self.memory_limit_bytes,
        }


def read_host_sample(fields: Fields) -> HostSample:
    """The sample in a report's `n`; raises BadMessage."""
    return HostSample(
        cpu_s=fields.optional("cpu", fields.number),
        cores=fields.optional("cor", fields.number),
        basis=fields.choice("b", Basis),
        received_bytes=fields.optional("rx", fields.integer),
        sent_bytes=fields.optional("tx", fields.integer),
        memory_bytes=fields.optional("mem", fields.integer),
        memory_limit_bytes=fields.optional("lim", fields.integer),
        link_bytes_s=fields.optional("lnk", fields.number),
        type=fields.optional("typ", fields.name),
        speed=fields.optional("spd", lambda name: fields.number(name, low=0.001, high=MAX_SPEED)),
        disk_total_bytes=fields.optional("dkt", fields.integer),
        disk_free_bytes=fields.optional("dkf", fields.integer),
        zone=fields.optional("zon", fields.name),
        ended=fields.optional("bye", fields.flag) or False,
    )
