"""Times in which no plan for balance begins."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import DRAIN_W1, ON_W0, answer, decider, execution, only, window
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.openings import Openings
from trimtab_controller.decider.values.decision import Skip
from trimtab_controller.decider.values.plan_settings import CronPeriod, PlanMode, PlanSettings, PlanTimes
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_protocol.messages.codec import CONFIGURATION, converted
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId

MONDAY = 1_790_553_600.0  # 28 September 2026, 00:00 UTC, 02:00 in Berlin
HOUR = 3600.0
NIGHT = PlanTimes(windows=("0 22 * * * for 4h",))
OTHER = AppId("other")


def deciding(times: PlanTimes, *intents: Intent, owners: dict = ON_W0) -> Decider:
    return decider(execution(owners), *intents, plans=PlanSettings(times=times))


def test_a_duration_counts_from_each_match_over_midnight_too() -> None:
    night = CronPeriod(expression="30 22 * * sun for 4h", timezone="UTC")
    held = [hour for hour in range(-4, 8) if night.covers(MONDAY + hour * HOUR)]
    assert held == [-1, 0, 1, 2]
    assert not night.covers(MONDAY + 2.5 * HOUR)


def berlin(day: int, hour: int, minute: int, *, month: int = 10, fold: int = 0) -> float:
    return datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).timestamp()


def test_an_hour_that_the_clocks_repeat_counts_twice() -> None:
    night = CronPeriod(expression="30 2 * * * for 1h", timezone="Europe/Berlin")
    held = [fold for fold in (0, 1) if night.covers(berlin(25, 2, 45, fold=fold))]
    assert held == [0, 1]
    assert not night.covers(berlin(25, 2, 15, fold=1)), "the clocks show a time before it"


def test_what_would_begin_in_an_hour_that_the_clocks_skip_begins_after_it_if_it_lasts() -> None:
    long = CronPeriod(expression="30 2 * * * for 1h", timezone="Europe/Berlin")
    assert [long.covers(berlin(29, 3, minute, month=3)) for minute in (0, 29, 30)] == [True, True, False]


@pytest.mark.parametrize(
    ("freeze", "windows", "at", "said"),
    [
        ("0 22 * * * for 4h", None, berlin(24, 23, 59), "Sun 25 Oct 02:00 (Europe/Berlin) on, in 2 h 1 min"),
        ("30 2 * * * for 1h", None, berlin(25, 2, 45), "Sun 25 Oct 02:00 (Europe/Berlin) on, in 15 min"),
        ("30 2 * * * for 1h", None, berlin(25, 2, 45, fold=1), "Sun 25 Oct 03:30 (Europe/Berlin) on, in 45 min"),
        ("0 1 * * * for 90m", None, berlin(29, 1, 50, month=3), "Sun 29 Mar 03:00 (Europe/Berlin) on, in 10 min"),
        (None, "30,50 2 * * * for 10m", berlin(25, 2, 45), "Sun 25 Oct 02:50 (Europe/Berlin) on, in 5 min"),
        (None, "30,50 2 * * * for 10m", berlin(25, 2, 15, fold=1), "Sun 25 Oct 02:30 (Europe/Berlin) on, in 15 min"),
        (None, "30 2 * * * for 1h", berlin(29, 1, 50, month=3), "Sun 29 Mar 03:00 (Europe/Berlin) on, in 10 min"),
        (None, "0 2 * * * for 20m", berlin(29, 1, 50, month=3), "Mon 30 Mar 02:00 (Europe/Berlin) on, in 23 h 10 min"),
    ],
)
def test_it_is_said_when_plans_may_begin_also_where_the_clocks_change(
    freeze: str | None, windows: str | None, at: float, said: str
) -> None:
    given = {name: (each,) for name, each in (("freeze", freeze), ("windows", windows)) if each}
    times = PlanTimes(**given, timezone="Europe/Berlin")
    assert str(Openings().closed(times, at)).endswith(f"; plans may begin from {said}")


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (
            PlanTimes(windows=("0 22 * * * for 4h",), freeze=("* 20-23 28 9 *",)),
            "it is outside [plans] windows; plans may begin from Tue 29 Sep 00:00 (UTC) on, in 12 h 0 min",
        ),
        (
            PlanTimes(freeze=("* 8-17 * * *", "0 17 * * * for 3h", "30 19 * * mon for 5h")),
            "[plans] freeze holds: * 8-17 * * * (UTC); plans may begin from Tue 29 Sep 00:30 (UTC) on, in 12 h 30 min",
        ),
        (
            PlanTimes(windows=("0 6 * * * for 8h",), freeze=("* 11-12 * * *",), timezone="Asia/Kolkata"),
            "it is outside [plans] windows; plans may begin from Tue 29 Sep 06:00 (Asia/Kolkata) on, in 12 h 30 min",
        ),
        (PlanTimes(freeze=("* * * * *",)), "[plans] freeze holds: * * * * * (UTC); no plan may begin in the next days"),
        (
            PlanTimes(windows=("0 22 * * * for 4h",), freeze=("0 20 * * * for 8h",)),
            "it is outside [plans] windows; no plan may begin in the next days",
        ),
    ],
)
def test_when_plans_may_begin_again_is_by_windows_and_freezes_together(times: PlanTimes, said: str) -> None:
    openings = Openings()
    assert openings.closed(times, MONDAY + 12 * HOUR) == said
    assert openings.closed(times, MONDAY + 12 * HOUR) == said, "as it has found before"


@pytest.mark.parametrize("expression", ["30 22 * * * for 8d", "30 22 * * * for ever", "30 22 * * * for 0h"])
def test_a_duration_that_cannot_be_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        CronPeriod(expression=expression, timezone="UTC")


def test_outside_its_windows_no_plan_for_balance_begins_and_the_decision_says_when_the_next_one_does() -> None:
    at = MONDAY + 12 * HOUR
    decision = only(deciding(NIGHT).on_event(at + 1.0, window(ON_W0, at)))
    assert decision == Skip(
        reason=SkipReason.PLANS_FROZEN,
        detail="app: load distance 15.0 above 5.0, but it is outside [plans] windows; "
        "plans may begin from Mon 28 Sep 22:00 (UTC) on, in 10 h 0 min",
        app=APP,
    )
    at = MONDAY + 23 * HOUR
    only_one(Solve, deciding(NIGHT).on_event(at + 1.0, window(ON_W0, at)))


def test_a_plan_whose_solver_began_before_the_freeze_does_not_begin_in_it() -> None:
    at = MONDAY + 8.999 * HOUR
    made = deciding(PlanTimes(freeze=("* 9-17 * * mon-fri",)))
    only_one(Solve, made.on_event(at + 1.0, window(ON_W0, at)))
    decision = of_type(Skip, only(made.on_event(MONDAY + 9 * HOUR, answer((2, 1)))))
    assert decision.reason is SkipReason.PLANS_FROZEN
    assert decision.detail.endswith(
        "but [plans] freeze holds: * 9-17 * * mon-fri (UTC); "
        "plans may begin from Mon 28 Sep 18:00 (UTC) on, in 9 h 0 min"
    )


def test_drains_go_on_in_a_freeze() -> None:
    owners = {kg(0): W0, kg(1): W1}
    only_one(
        Solve,
        deciding(PlanTimes(freeze=("* * * * *",)), DRAIN_W1, owners=owners).on_event(
            MONDAY + 11.0, window(owners, MONDAY + 10.0)
        ),
    )


def read_plans(document: dict) -> PlanSettings:
    return converted(document, PlanSettings, "plans", CONFIGURATION)


def test_an_app_may_have_times_and_a_mode_of_its_own() -> None:
    found = read_plans(
        {
            "freeze": ["* 9-17 * * *"],
            "timezone": "Europe/Berlin",
            "apps": {
                "app": {"mode": "approve", "freeze": [], "windows": ["0 22 * * * for 4h"]},
                "other": {"mode": "dry-run"},
            },
        }
    )
    assert (found.of(APP), found.of(OTHER)) == (PlanMode.APPROVE, PlanMode.DRY_RUN)
    assert found.times_of(OTHER) == PlanTimes(freeze=("* 9-17 * * *",), timezone="Europe/Berlin")
    assert found.times_of(APP) == PlanTimes(windows=("0 22 * * * for 4h",), timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"windows": ["soon"]}, r"plans\.windows: found 'soon', expected a cron expression"),
        ({"apps": {"app": {"freeze": ["* * * *"]}}}, r"plans\.apps\.app\.freeze: found '\* \* \* \*', expected a cron"),
        ({"apps": {"app": {"mode": "on"}}}, r"plans\.apps\.app\.mode: found 'on', expected one of dry-run, approve"),
        ({"apps": {"app": "approve"}}, r"plans\.apps\.app: found a string, expected an object"),
        ({"timezone": "Mars/Base"}, r"plans\.timezone: found 'Mars/Base', expected a time zone"),
    ],
)
def test_times_that_cannot_be_read_are_refused(document: dict, said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        read_plans(document)
