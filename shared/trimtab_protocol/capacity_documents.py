"""What the console's HTTP API answers about workers together, as bars, by host and zone, and the demand of apps.

As in `console_documents`: loads in percent of the capacity, times in epoch seconds; None = unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.messages.status import HostStatus


class HostOrder(StrEnum):
    """How hosts are ordered; demands with the highest first, unknown ones last."""

    NAME = "name"
    DEMAND = "demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Workers as columns, one entry per bar, ordered by zone and host; a bar stands for `workers_per_bar` at most.

    `host` and `zone` = those of the `first` of its workers; `zone` None: it is not known.
    `load`, `used`, `demand` = the highest of its workers, `used_mean` = their mean, in percent of a worker's capacity;
    `remark` = what the first of them that is not running and steered is.  `mean_use` = the use of all workers together,
    in percent of their capacity.
    """

    total: int
    workers_per_bar: int
    mean_use: float | None
    first: Sequence[str]
    host: Sequence[str]
    count: Sequence[int]
    load: Sequence[float | None]
    used: Sequence[float | None]
    used_mean: Sequence[float | None]
    demand: Sequence[float | None]
    remark: Sequence[str | None]
    zone: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow(HostStatus):
    """A host: what it reports, and its workers.

    `workers` are known there, of which `running` run and `draining` are drained; `key_groups` = what they own together.
    `maintenance_until` = when its maintenance ends; None: it is in none.
    """

    workers: int = 0
    running: int = 0
    draining: int = 0
    key_groups: int = 0
    maintenance_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Some workers together, and the hosts that they are on.

    `used_cores`, `demand_cores` of `capacity_cores`: sums over the `running` of `workers` as far as they are known,
    None if none is; `unknown` = running workers without one of them.
    """

    hosts: int
    workers: int
    running: int
    capacity_cores: float
    used_cores: float | None
    demand_cores: float | None
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRow(Totals):
    """The hosts that may fail together, as agents name them; `zone` None: those whose zone is not known."""

    zone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The demand of an app in cores, as it was measured `at` these times, and as it is forecast for those `ahead_at`.

    `text` = the forecast and its errors in words, or why there is none; `used`: the number of workers follows it.
    `error` = the mean absolute error of such forecasts, as far ahead as a worker takes until it runs; None = unknown.
    """

    text: str
    used: bool
    error: float | None
    at: Sequence[float]
    cores: Sequence[float | None]
    ahead_at: Sequence[float]
    ahead: Sequence[float]
