"""The forecast of an app, for the status and in words."""

from trimtab_controller.decider.forecast.history import DIGITS, STEP_S
from trimtab_controller.decider.forecast.rounds import ForecastTold
from trimtab_models.forecast import Accuracy
from trimtab_protocol.messages.status import AccuracyStatus, ForecastStatus


def forecast_status(told: ForecastTold | None) -> ForecastStatus | None:
    """The status of a forecast; None if nothing is forecast."""
    if told is None:
        return None
    return ForecastStatus(
        text=_text(told),
        used=told.used,
        peak_cores=told.peak,
        period_s=told.period_s,
        at=told.at,
        known_s=told.known_s,
        near=_accuracy(told.near),
        far=_accuracy(told.far),
        ahead_at=told.ahead_at,
        step_s=None if told.ahead_at is None else float(STEP_S),
        ahead=tuple(round(each, DIGITS) for each in told.ahead),
    )


def _text(told: ForecastTold) -> str:
    if told.near is None:
        return f"none: {told.why}"
    lead = f"{told.near.horizon * STEP_S / 60.0:.0f} min ahead"
    peak = f"none now: {told.why}" if told.peak is None else f"{told.peak:.2f} cores at most, {lead}"
    if told.near.model is None or told.near.last is None:
        return f"{peak}; its error is unknown, so it is not used"
    error, last = told.near.model, told.near.last
    errors = f"mean error {error.mae:.2f} cores ({error.smape:.0f} %), of the last value {last.mae:.2f}"
    return f"{peak}; {errors} ({last.smape:.0f} %){_use(told)}"


def _use(told: ForecastTold) -> str:
    if told.used or told.peak is None:
        return ""
    better = any(each is not None and each.is_better for each in (told.near, told.far))
    return f" ({told.mode}: nothing follows it)" if better else ", so it is not used"


def _accuracy(found: Accuracy | None) -> AccuracyStatus | None:
    if found is None:
        return None
    return AccuracyStatus(
        horizon_s=float(found.horizon * STEP_S),
        tested=found.tested,
        scored=found.scored,
        better=found.is_better,
        error=None if found.model is None else found.model.mae,
        last_error=None if found.last is None else found.last.mae,
        seasonal_error=None if found.seasonal is None else found.seasonal.mae,
        error_pct=None if found.model is None else found.model.smape,
        last_error_pct=None if found.last is None else found.last.smape,
    )
