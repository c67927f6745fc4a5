"""The settings of the decider: [balance], [placement] and [forecast] of the configuration."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from trimtab_controller.decider.values.scaling import Mode
from trimtab_controller.solver.answer import Method
from trimtab_protocol.messages.codec import NotSent, Range
from trimtab_protocol.messages.decode import MAX_NUMBER

MAX_MIGRATIONS = 1_000
"""Maximum number of key groups per round, since a round with all its commands is one message of the journal."""
Points = Annotated[float, Range(0.0, 100.0)]
Share = Annotated[float, Range(0.01, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration's [balance]; distances in pp, times in seconds.

    Nothing moves while the load distance is within the band `load_distance`, or for a gain below `min_gain`.  A drain
    may raise the load distance of the other workers up to `drain_load_distance`.  That is higher than the band, since
    otherwise one heavy key group would block the drain.  Loads and flows are smoothed over windows (`smoothing` =
    weight of the newest) and used after `min_windows`.

    A load is the demand: where inputs wait for CPU, it includes working the backlog off within `catch_up_s`.  After a
    restart of 30 s, 300 s ask for 10 % more than the input alone, which moves little; 10 minutes of backlog ask for
    three times as much.

    With ALBIC key groups also move inside the band if that raises collocation, lowers the mean load by `min_gain`, and
    pays back the restores of their state within half an hour (`PAY_BACK_S`).  What a tuple costs only because it goes
    to another worker is measured (`memory/remote_costs.py`), unless an operator states it (`remote_tuple_cpu_s`, both
    ends together); without a significant cost there are only trials (`policies/trial.py`).

    `max_disk` = share of a disk that plans and standbys fill at most, `max_link` = share of a host's link, each way,
    that plans fill at most: traffic comes in bursts.
    """

    method: Method = Method.ALBIC
    max_migrations: Annotated[int, Range(1, MAX_MIGRATIONS)] = 13
    load_distance: Points = 5.0
    min_interval_s: float = 30.0
    smoothing: Share = 0.5
    min_windows: Annotated[int, Range(1, 1000)] = 3
    min_gain: Points = 0.5
    drain_load_distance: Annotated[float, Range(0.0, 1000.0)] = 25.0
    remote_tuple_cpu_s: Annotated[float | None, Range(0.0, 1.0)] = None
    catch_up_s: Annotated[float, Range(10.0, 86_400.0)] = 300.0
    max_disk: Share = 0.9
    max_link: Share = 0.9
    solver_time_limit_s: Annotated[float, Range(0.01, 600.0)] = 2.0
    """A solver that does not answer then is killed."""

    @property
    def learns_by_trial(self) -> bool:
        """Whether key groups may move to learn what remote tuples cost."""
        return self.method is Method.ALBIC and self.remote_tuple_cpu_s is None

    def moves_for(self, max_moves: int | None) -> int:
        """How many key groups a plan may move for an app with a limit of its own."""
        return self.max_migrations if max_moves is None else min(self.max_migrations, max_moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The requirements for a snapshot; [balance] has `lost_worker_s` and `max_unknown`.

    `lost_worker_s`: how long a worker may be absent before it counts as gone.  `max_unknown`: the share of an app's
    load that may be unknown.  `stale_limit_s`: how long the last known load of a key group stands in for a missing one.
    """

    min_coverage: Annotated[float, NotSent()] = 0.6
    max_age_s: Annotated[float, NotSent()] = 45.0
    lost_worker_s: Annotated[float, Range(1.0, MAX_NUMBER)] = 60.0
    max_unknown: Annotated[float, Range(0.0, 1.0)] = 0.05
    stale_limit_s: Annotated[float, NotSent()] = 600.0


class First(StrEnum):
    """`[placement] first`: how an app without state is placed."""

    ADOPT = "adopt"  # as the engine does
    EVEN = "even"
    LF = "lf"
    AUTO = "auto"  # the one with the least load on the fullest worker, if that is clearly less than as started


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """The configuration's [forecast].

    Off: no demand is remembered.  Advise: it is said what is forecast, and how good that has been.  Act: the number of
    workers also follows forecasts that have been better than the last value.
    """

    mode: Mode = Mode.OFF
