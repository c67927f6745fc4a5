"""Plans for balance that wait for a peak to pass, and those that do not."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from trimtab_controller.decider.decision import Planned, Skip
from trimtab_controller.decider.forecast.day_pattern import HORIZONS, MIN_TESTED, DayPattern
from trimtab_controller.decider.forecast.history import DAY, STEP_S
from trimtab_controller.decider.forecast.moves import MAX_KEY_GROUPS, MoveForecasts
from trimtab_controller.decider.forecast.pattern_records import decode_pattern, key_of_pattern, patterns_of
from trimtab_controller.decider.forecast.pay_back import Costs, pay_back_s
from trimtab_controller.decider.forecast.settings import ForecastMode, ForecastSettings
from trimtab_controller.decider.observing.evaluate import Evaluation
from trimtab_controller.decider.observing.owned import Owned
from trimtab_controller.decider.observing.view import AppView, Worker
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.settings import Settings
from trimtab_controller.decider.standbys.copies import Held
from trimtab_controller.execution.restores.costs import LearnedRestores
from trimtab_controller.plan import Collocation, Move, MoveReason, Plan, PlanReason, PlanWhy
from trimtab_protocol.messages.decode import BadMessage, encode
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP, OTHER = AppId("orders"), AppId("other")
W0, W1 = WorkerId("w0"), WorkerId("w1")
WORKERS = tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in (W0, W1))
MONDAY = 20_000 * DAY * STEP_S
NOON = DAY // 2
GIB = 2**30
ACT = ForecastSettings(mode=ForecastMode.ACT)
RESTORES = LearnedRestores(unit_s=0.0, bytes_per_s=GIB / 300.0)


def kg(place: int, app: AppId = APP) -> KeyGroup:
    return KeyGroup(app, OperatorId("sums"), place)


def view(step: int, loads: tuple[float, ...], app: AppId = APP, seconds: float = STEP_S) -> AppView:
    """A window of a step; key group 0 and 1 are on w0, the others on w1; each has 1 GiB of state."""
    start_s = MONDAY + step * STEP_S
    owned = [
        Owned(key_group=kg(place, app), owner=W0 if place < 2 else W1, load=load, state_bytes=GIB)
        for place, load in enumerate(loads)
    ]
    return AppView(
        app=app, start_s=start_s, end_s=start_s + seconds, workers=WORKERS, key_groups=owned, flows={}, standbys=0
    )


def daily(step: int, peak: float = 50.0) -> tuple[float, ...]:
    """20 % on each worker; at noon, key group 0 has a peak for a quarter of an hour."""
    high = NOON <= step % DAY < NOON + 3
    return (peak if high else 10.0, 10.0, 10.0, 10.0)


def learned(days: int = 3, settings: ForecastSettings = ACT, peak: float = 50.0) -> MoveForecasts:
    """After so many days, up to the last step before noon."""
    return deepcopy(_learned(days, settings, peak))


@cache
def _learned(days: int, settings: ForecastSettings, peak: float) -> MoveForecasts:
    found = MoveForecasts(settings=settings)
    for step in range(days * DAY + NOON):
        seen(found, step, daily(step, peak))
    return found


def seen(found: MoveForecasts, step: int, loads: tuple[float, ...], distance: float = 0.0) -> AppView:
    window = view(step, loads)
    evaluation = Evaluation(worker_loads={}, mean_load=0.0, load_distance=distance, noise=0.0)
    found.see({APP: window}, {APP: evaluation}, 5.0)
    return window


def plan(before: float = 20.0, after: float = 0.0, **changes: object) -> Planned:
    """One key group of w0 moves to w1."""
    found = Plan(
        app=APP,
        reason=PlanReason.LOAD_DISTANCE,
        detail="load distance 20.0 above 5.0",
        moves=(Move(key_group=kg(1), source=W0, target=W1, state_bytes=GIB),),
        hosts={worker.id: worker.host for worker in WORKERS},
        before=before,
        planned=after,
        lower_bound=0.0,
        status="optimal",
    )
    return Planned(plan=replace(found, **changes))  # type: ignore[arg-type]


def costs(restores: LearnedRestores = RESTORES, pause_s: float = 0.0) -> Costs:
    return Costs(restores=restores, held=Held(), pause_s=pause_s)


def judged(
    found: MoveForecasts,
    step: int,
    loads: tuple[float, ...],
    planned: Planned | None = None,
    restores: LearnedRestores = RESTORES,
    late_s: float = 60.0,
) -> Planned | Skip:
    """What becomes of a plan, `late_s` after the begin of a step with these loads."""
    window = view(step, loads, seconds=late_s)
    now = MONDAY + step * STEP_S + late_s
    return found.judged(now, window, planned or plan(), Settings(), lambda: costs(restores))


AT_NOON = 3 * DAY + NOON


# --- what waits


def test_a_plan_waits_for_a_peak_that_passes_before_its_moves_pay_back() -> None:
    found = judged(learned(), AT_NOON, daily(AT_NOON))
    assert isinstance(found, Skip)
    assert (found.reason, found.app) == (SkipReason.PEAK_PASSES, APP)
    # It passes 15 minutes after noon.  To restore 1 GiB takes 300 s: 300 s, and 30,000 pp s for a gain of 20 pp.
    assert found.detail == (
        "orders: load distance 20.0 above 5.0, held: the peak is forecast to pass in 14 min (mean error 0.0 pp, of the "
        "last value 20.0 pp), moves pay back after 30 min"
    )


@pytest.mark.parametrize(("restore_s", "waits"), [(100.0, False), (140.0, False), (145.0, True), (300.0, True)])
def test_a_plan_that_pays_back_before_the_peak_has_passed_is_made(restore_s: float, waits: bool) -> None:
    restores = LearnedRestores(unit_s=0.0, bytes_per_s=GIB / restore_s)  # pays back after 6 times as long
    assert isinstance(judged(learned(), AT_NOON, daily(AT_NOON), restores=restores), Skip) is waits


def test_a_peak_that_comes_a_step_early_or_late_is_known_all_the_same() -> None:
    early = learned()
    assert isinstance(judged(early, AT_NOON - 1, daily(AT_NOON)), Skip)
    late = learned()
    seen(late, AT_NOON, daily(0))
    assert isinstance(judged(late, AT_NOON + 1, daily(AT_NOON)), Skip)


@pytest.mark.parametrize(
    ("step", "loads"),
    [
        (3 * DAY + 18 * 12, (50.0, 10.0, 10.0, 10.0)),  # the same key group, at another time of the day
        (AT_NOON, (10.0, 50.0, 10.0, 10.0)),  # the same time, another key group
        (AT_NOON, (50.0, 30.0, 10.0, 10.0)),  # both: when the peak has passed, 20 pp are left
    ],
)
def test_a_rise_that_never_was_before_is_expected_to_stay(step: int, loads: tuple[float, ...]) -> None:
    found = learned()
    for each in range(AT_NOON, step):
        seen(found, each, daily(each))
    assert isinstance(judged(found, step, loads), Planned)


def test_a_rise_that_stays_does_not_become_usual_while_it_is_judged() -> None:
    found = learned()
    begin = 3 * DAY + 18 * 12
    for step in range(AT_NOON, begin):
        seen(found, step, daily(step))
    for step in range(begin, begin + 30):
        assert isinstance(judged(found, step, (50.0, 10.0, 10.0, 10.0)), Planned)
        seen(found, step, (50.0, 10.0, 10.0, 10.0), distance=20.0)


def test_a_peak_that_does_not_pass_is_waited_for_once() -> None:
    found, high = learned(), daily(AT_NOON)
    made = []
    for step in range(AT_NOON, AT_NOON + 8):
        made.append(isinstance(judged(found, step, high), Planned))
        seen(found, step, high, distance=20.0)
    assert made == [False, False, False, False, True, True, True, True], "it was to pass in 14 min, and may be 5 late"


def test_the_next_peak_is_waited_for_again_once_the_app_was_in_its_band() -> None:
    found, high = learned(), daily(AT_NOON)
    assert isinstance(judged(found, AT_NOON, high), Skip)
    for step in range(AT_NOON, AT_NOON + DAY):
        seen(found, step, daily(step), distance=20.0 if daily(step) == high else 0.0)
    assert isinstance(judged(found, AT_NOON + DAY, high), Skip)


def test_peaks_that_follow_each_other_closely_are_moved_for() -> None:
    """High for 30 of 40 minutes, all day long: within the pay-back time it is mostly high."""
    found = MoveForecasts(settings=ACT)
    loads = ((10.0,) * 4, *((50.0, 10.0, 10.0, 10.0),) * 3)
    for step in range(3 * DAY):
        seen(found, step, loads[step // 2 % 4])
    assert isinstance(judged(found, 3 * DAY + 2, loads[1]), Planned)


# --- what does not wait


def test_what_is_not_for_balance_alone_does_not_wait() -> None:
    drain = plan(reason=PlanReason.DRAIN)
    saving = plan(collocation=Collocation(before=0.1, planned=0.5, saved_pp=3.0))
    why = PlanWhy(reasons=(MoveReason.HOST_FULL,), loads=(10.0,), before={}, after={}, mean_load=20.0, next=None)
    for planned in (drain, saving, plan(why=why)):
        assert judged(learned(), AT_NOON, daily(AT_NOON), planned) == planned


def test_a_worker_over_its_capacity_is_relieved_at_once() -> None:
    found = learned()
    assert isinstance(judged(found, AT_NOON, (89.0, 10.0, 10.0, 10.0)), Planned), "99 %, and the error is unknown"
    for peak, decision in ((95.0, Planned), (85.0, Skip)):
        assert isinstance(judged(learned(peak=peak), AT_NOON, daily(AT_NOON, peak)), decision)


def test_a_peak_was_seen_on_three_days_before_a_plan_waits_for_it() -> None:
    assert isinstance(judged(learned(days=2), 2 * DAY + NOON, daily(AT_NOON)), Planned)
    assert isinstance(judged(learned(days=3), AT_NOON, daily(AT_NOON)), Skip)


def test_a_forecast_that_is_no_better_than_the_last_value_is_not_used() -> None:
    draw = np.random.default_rng(1)
    found = MoveForecasts(settings=ACT)
    for step in range(3 * DAY + NOON):
        noise = draw.uniform(0.0, 40.0, 4)
        seen(found, step, tuple(np.array(daily(step)) + noise))
    assert isinstance(judged(found, AT_NOON, daily(AT_NOON)), Planned)
    assert found.told()[APP].endswith("so it is not used")


def test_a_hold_has_a_limit() -> None:
    long = replace(ACT, hold_moves_s=600.0)
    assert isinstance(judged(learned(settings=long), AT_NOON, daily(AT_NOON)), Planned), "it passes in 14 min"


def test_without_the_mode_or_with_a_limit_of_0_nothing_is_remembered() -> None:
    for settings in (ForecastSettings(), replace(ACT, hold_moves_s=0.0)):
        found = learned(days=1, settings=settings)
        assert (found.patterns, found.told(), found.records()) == ({}, {}, [])


def test_advise_says_what_would_wait() -> None:
    found = judged(learned(settings=ForecastSettings(mode=ForecastMode.ADVISE)), AT_NOON, daily(AT_NOON))
    assert isinstance(found, Planned)
    assert found.plan.note.startswith("the peak is forecast to pass in 14 min")
    assert found.plan.note.endswith('with forecast.mode = "act" this would wait')


# --- what is known


def test_what_is_told() -> None:
    assert learned(days=0).told() == {
        APP: "none: 12 h of the day are known, and load distances above the band were forecast on 0 days of 2"
    }
    assert learned().told() == {APP: "workers' loads 5 min ahead: mean error 0.00 pp, of the last value 10.00 pp"}


def test_a_step_that_was_hardly_measured_is_unknown_and_not_zero() -> None:
    pattern = DayPattern(sizes={OperatorId("sums"): 4})
    pattern.see(view(0, (10.0,) * 4, seconds=100.0), 5.0)
    for step in range(1, 4):
        pattern.see(view(step, (10.0,) * 4), 5.0)
    assert np.isnan(pattern.rows[0]).all()
    assert pattern.rows[1].tolist() == [10.0] * 4
    assert np.isnan(pattern.rows[2]).all(), "it becomes part of the pattern a step later"


def test_apps_beyond_the_limit_and_other_sizes() -> None:
    found = MoveForecasts(settings=ACT)
    seen(found, 0, (1.0,) * 4)
    many = view(0, (1.0,) * 4, OTHER)
    many.sizes[OperatorId("sums")] = MAX_KEY_GROUPS - 3  # it is a cached property
    found.see({OTHER: many}, {}, 5.0)
    assert set(found.patterns) == {APP}
    seen(found, 1, (1.0,) * 6)
    assert len(found.patterns[APP]) == 6
    assert found.patterns[APP].days.sum() == 0


def test_what_is_gone_is_forgotten() -> None:
    found = learned(days=1)
    found.records()
    found.forget(APP)
    assert len(found.records()) == DAY
    assert (found.patterns, found.records()) == ({}, [])


# --- records


def test_a_successor_goes_on_with_what_was_recorded() -> None:
    found = learned()
    records = dict(found.records())
    assert set(records) == {key_of_pattern(APP, slot) for slot in range(DAY)}
    patterns = patterns_of(decode_pattern(each) for each in records.values())
    after = MoveForecasts(settings=ACT, patterns=patterns)
    assert np.array_equal(after.patterns[APP].rows, found.patterns[APP].rows, equal_nan=True)
    assert isinstance(judged(after, AT_NOON, daily(AT_NOON)), Skip), "the errors are recorded, too"
    assert after.records() == []


def test_each_step_is_recorded_once_it_is_known() -> None:
    found = learned(days=0)
    found.records()
    seen(found, NOON, daily(NOON))
    assert [key for key, _ in found.records()] == [key_of_pattern(APP, NOON - 2)]
    seen(found, NOON + 1, daily(NOON))
    assert [key for key, _ in found.records()] == [key_of_pattern(APP, NOON - 1)]


def test_what_was_recorded_of_other_key_groups_is_left_out() -> None:
    old, new = MoveForecasts(settings=ACT), MoveForecasts(settings=ACT)
    for step in range(6):
        seen(old, step, (1.0,) * 6)
    for step in range(6, 12):
        seen(new, step, (1.0,) * 4)
    records = [decode_pattern(value) for _, value in (*old.records(), *new.records())]
    found = patterns_of(records)[APP]
    assert (len(found), sorted(found.recorded())) == (4, [6, 7, 8, 9])


BROKEN = {"v": 1, "app": "orders", "step": 5, "days": 1, "loads": {"sums": "AAA="}, "horizons": [1], "errors": []}


@pytest.mark.parametrize(
    ("changed", "at"),
    [
        ({"loads": {"sums": "A"}}, "loads.sums"),
        ({"loads": {"sums": "AA=="}}, "loads.sums"),  # a byte is no float
        ({"loads": {"sums": "AHw="}}, "loads.sums"),  # infinite
        ({"loads": {"sums": 7}}, "loads.sums"),
        ({"loads": {"a b": "AAA="}}, "loads"),
        ({"days": 0}, "days"),
        ({"step": -1}, "step"),
        ({"horizons": list(HORIZONS), "errors": [{"step": 5, "of": [[1.0], [1.0]]}]}, "errors[0].of"),
        ({"horizons": list(HORIZONS), "errors": [{"step": 5, "of": [["x"] * len(HORIZONS)] * 2}]}, "errors[0].of"),
        ({"horizons": list(HORIZONS), "errors": [{"step": 5, "of": [[1.0] * len(HORIZONS)]}]}, "errors[0].of"),
        ({"horizons": list(HORIZONS), "errors": [{"step": 5, "of": []}]}, "errors[0].of"),
    ],
)
def test_a_record_that_is_broken_is_refused(changed: dict[str, object], at: str) -> None:
    assert decode_pattern(encode(BROKEN)).errors == {}, "another version may test other horizons"
    with pytest.raises(BadMessage) as found:
        decode_pattern(encode({**BROKEN, **changed}))
    assert found.value.path.startswith(at)


# --- pay-back


def test_moves_pay_back_what_restores_and_pauses_cost_there_and_back() -> None:
    window = view(0, (50.0, 10.0, 10.0, 10.0))
    assert pay_back_s(window, plan().plan, costs()) == pytest.approx(300.0 + 30_000.0 / 20.0)
    paused = costs(pause_s=100.0)  # 10 s of a core each way
    assert pay_back_s(window, plan().plan, paused) == pytest.approx(310.0 + 31_000.0 / 20.0)
    assert pay_back_s(window, plan(after=20.0).plan, costs()) == np.inf


def test_a_standby_restores_nothing_and_an_old_owner_that_stays_one_neither() -> None:
    window = replace(view(0, (50.0, 10.0, 10.0, 10.0)), standbys=1)
    lacking = plan(moves=(replace(plan().plan.moves[0], lacking_bytes=GIB // 10),)).plan
    assert pay_back_s(window, lacking, costs()) == pytest.approx(30.0 + 3_000.0 / 20.0)


def test_errors_count_where_the_load_distance_was_above_the_band() -> None:
    pattern = learned().patterns[APP]
    high = {day * DAY + NOON + step for day in (1, 2) for step in (0, 1, 2)}
    # Five minutes ahead: of the first step of a peak to that after it.
    assert {step - MONDAY // STEP_S for step, row in pattern.errors.items() if not np.isnan(row[0, 0])} == {
        *high,
        *(step + 1 for step in high),
    }
    found = pattern.error(1)
    assert found is not None
    assert (found.tested, found.days, found.last) == (8, 2, 10.0)
    assert found.tested >= MIN_TESTED
    assert pattern.error(HORIZONS[-1] + 1) is None
