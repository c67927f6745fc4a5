"""How large a run is, and what it has measured."""

import argparse
from dataclasses import asdict, dataclass, fields

from jobs.oracle import Verdict
from trimtab_protocol.messages.status import RoundStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is; seconds, records per second, key groups per operator.

    `rate` 0 = the job's own; `moves` = migrations per round, 0 = the job's own budget; `min_gain`
    in pp, below the default because of that; `steer_s` = longest time for the controller; `burst` = records at once, to
    saturate; `local` = whether events may skip the broker: if not, collocation gains nothing; `keyless` =
    whether page views name no partition for what has no key; `turns` = how often the first and the last placement are
    measured again in turn, for `turn_s` and with a burst each; `window_s` = what one snapshot covers.
    """

    workers: int = 4
    partitions: int = 20
    capacity: float = 0.25
    rate: float = 0.0
    work_us: int = 0
    moves: int = 0
    min_gain: float = 0.2
    warm_s: float = 25.0
    measure_s: float = 30.0
    steer_s: float = 300.0
    burst: int = 6_000
    local: bool = True
    keyless: bool = False
    turns: int = 0
    turn_s: float = 20.0
    window_s: float = 5.0


def add_scale(parser: argparse.ArgumentParser, defaults: Scale) -> None:
    """An option for each field."""
    for name, default in asdict(defaults).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=default)
        else:
            parser.add_argument(option, type=type(default), default=default)


def scale_of(given: argparse.Namespace) -> Scale:
    """The scale that options ask for."""
    return Scale(**{each.name: getattr(given, each.name) for each in fields(Scale)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturated:
    """A burst that is more than the workers can process at once: records per second, and CPU microseconds per record.

    Workers wait for nothing then, so this CPU is that of the records.
    """

    rate: float
    worker_us: float
    broker_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What was measured over a time: CPU microseconds per record of the input; None = unknown.

    `load` = CPU of the key groups, seconds per record; `load_distance` in pp of capacity; `latencies_ms` = mean and
    99th percentile where the job notes them; `saturated` = by a burst after it, where one was sent.
    """

    worker_us: float
    broker_us: float
    rate: float
    collocation: float | None
    local_sends: float | None
    load: float | None
    load_distance: float | None
    latencies_ms: tuple[float, float] | None
    saturated: Saturated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the controller knew at a time, seconds since it was let loose."""

    at_s: float
    rounds: int
    collocation: float | None
    obtainable: float | None
    load_distance: float | None
    mean_load: float | None
    costs: str
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a run; `saturated` = before and after what the controller did.

    `turns` = the first and the last placement, measured in turn.
    """

    job: str
    method: str
    before: Phase
    after: Phase
    rounds: tuple[RoundStatus, ...]
    steps: tuple[Step, ...]
    obtainable: float | None
    saturated: tuple[Saturated, Saturated]
    turns: tuple[tuple[Phase, Phase], ...] = ()
    sent: int
    verdict: Verdict
