"""The demand of an app as it was measured and as it is forecast: one series for a chart.  Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trimtab_controller.decider.memory.forecasts import DAY, STEP_S, DemandRecord
from trimtab_protocol.console_documents import Demand, Point
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import AppStatus, ForecastStatus

SHOWN_S = 86_400.0
"""How far back the demand is told."""
KEPT_DAYS = 2
"""Records that are kept per app: the last day of time begins in the one before."""
MAX_APPS = 100
"""Apps whose records are kept."""
MINUTE_S = 60.0
HOUR_S = 3_600.0
OFF = "none: the `[forecast] mode` of the controller is off, which is the default"

Days = Mapping[AppId, Mapping[int, DemandRecord]]
"""Records of an app by day."""


def noted(days: Days, app: AppId, day: int, record: DemandRecord | None) -> Days:
    """The records with this one, of which the newest are kept; None: it is forgotten."""
    known = {number: each for number, each in days.get(app, {}).items() if number != day}
    if record is not None and (app in days or len(days) < MAX_APPS):
        known[day] = record
    others = {name: each for name, each in days.items() if name != app}
    kept = {number: known[number] for number in sorted(known)[-KEPT_DAYS:]}
    return {**others, app: kept} if kept else others


def demand_of(app: AppStatus, days: Mapping[int, DemandRecord], points: Sequence[Point], now: float) -> Demand:
    """What an app was asked for over the last day, and what is forecast.

    Measured are the means that the controller has recorded, and after them what the console has seen itself.
    """
    told = app.forecast
    recorded = [row for row in _recorded(days.values()) if row[0] > now - SHOWN_S]
    rows = [*recorded, *_since(recorded, points, now)]
    ahead_at = _ahead_at(told)
    return Demand(
        text=OFF if told is None else told.text,
        used=told is not None and told.used,
        error=told.near.error if told is not None and told.near is not None else None,
        at=[at for at, _ in rows],
        cores=[cores for _, cores in rows],
        ahead_at=ahead_at,
        ahead=list(told.ahead) if told is not None and ahead_at else [],
    )


def _ahead_at(told: ForecastStatus | None) -> list[float]:
    """The middle of each step of the forecast; none if there is no forecast."""
    if told is None or told.ahead_at is None or told.step_s is None:
        return []
    return [told.ahead_at + (place + 0.5) * told.step_s for place in range(len(told.ahead))]


def _recorded(records: Iterable[DemandRecord]) -> Iterator[tuple[float, float | None]]:
    """The middle of each step, and its value."""
    for record in sorted(records, key=lambda each: each.day):
        for place, cores in enumerate(record.values):
            yield (record.day * DAY + place + 0.5) * STEP_S, cores


def _since(
    recorded: Sequence[tuple[float, float | None]], points: Sequence[Point], now: float
) -> Iterator[tuple[float, float | None]]:
    """What the console has seen after that: as means of as long steps, or finer ones where nothing is recorded."""
    after = recorded[-1][0] + STEP_S / 2.0 if recorded else now - SHOWN_S
    seen = [row for row in points if row.at > after]
    span_s = seen[-1].at - seen[0].at if seen else 0.0
    step_s = float(STEP_S) if recorded else MINUTE_S
    if not recorded and span_s <= HOUR_S:
        yield from ((row.at, row.demand_cores) for row in seen)
        return
    steps: dict[int, list[float]] = {}
    for row in seen:
        found = steps.setdefault(int(row.at // step_s), [])
        if row.demand_cores is not None:
            found.append(row.demand_cores)
    for step, cores in steps.items():
        yield (step + 0.5) * step_s, sum(cores) / len(cores) if cores else None
