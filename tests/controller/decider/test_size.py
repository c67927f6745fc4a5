"""The size of an app: every rule by which it stays, grows or shrinks, and that noise moves nothing."""

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.decider.sized_apps import ACT, Fleet, facts, verdict, word, worker
from trimtab_controller.decider.memory.forecasts import Ahead, Peak
from trimtab_controller.decider.policies.size_facts import Pool
from trimtab_controller.decider.policies.smaller import bound_after_loss, can_be_spread, leavers
from trimtab_controller.decider.policies.verdict import judge
from trimtab_controller.decider.values.decision import SizeDirection
from trimtab_controller.decider.values.plan_settings import CronPeriod, PlanTimes
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.execution.state import SizeChange
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import HostId, WorkerId

HALF_HOUR = 1800.0


# --- out


def test_above_the_band_as_many_workers_are_wanted_as_bring_the_app_to_the_target() -> None:
    found = verdict(facts(4, 3.6))
    assert (found.direction, found.workers, found.wanted, found.desired) == (SizeDirection.OUT, 4, 6, 6)
    assert [row.worker for row in found.start] == ["w50", "w51"]
    assert found.detail.startswith("4 workers, demand 3.60 of 4.00 cores (90%), wanted 6: demand above 85% for ")


def test_the_delay_counts_from_the_first_window_of_an_unbroken_need() -> None:
    need, found = None, []
    for number in range(4):
        busy, need = judge(facts(4, 3.6, 1000.0 + 10.0 * number), ACT, need=need)
        found.append((busy.due, busy.desired, busy.wanted))
    assert found == [(False, 4, 6), (False, 4, 6), (True, 6, 6), (True, 6, 6)]
    calm, need = judge(facts(4, 2.8, 1040.0), ACT, need=need)
    assert (calm.direction, need) == (SizeDirection.STAY, None)
    again, _ = judge(facts(4, 3.6, 1050.0), ACT, need=need)
    assert not again.due


def test_a_step_at_most_doubles_the_app_and_adds_one_worker_at_least() -> None:
    assert verdict(facts(4, 40.0)).wanted == 8
    assert verdict(facts(1, 40.0)).wanted == 2
    assert verdict(facts(4, 40.0), replace(ACT, max_workers=6)).wanted == 6
    full = verdict(facts(6, 40.0), replace(ACT, max_workers=6))
    assert (full.direction, full.detail.endswith("demand above 85%, but max_workers is 6")) == (
        SizeDirection.STAY,
        True,
    )


def test_what_the_hook_adds_has_some_time_to_come() -> None:
    asked = (SizeChange(at=900.0, before=4, after=6, rate=1.0),)
    hooked = replace(ACT, hook=("add",))
    found = verdict(facts(4, 3.6, pool=()), hooked, changes=asked)
    assert (found.due, found.detail.endswith("waiting for what the hook adds, 20 s at most")) == (False, True)
    assert verdict(facts(4, 3.6, 1020.0, pool=()), hooked, changes=asked).due
    slow = facts(4, 3.6, 1020.0, pool=(), restart_s=150.0)
    assert not verdict(slow, hooked, changes=asked).due, "one has taken longer than configured"
    assert verdict(facts(6, 5.6, pool=()), hooked, changes=asked).due


def test_workers_that_leave_are_kept_before_others_are_started() -> None:
    leaving = (worker(2, stays=False), worker(3, stays=False))
    seen = replace(facts(2, 1.9), workers=(worker(0), worker(1), *leaving), leaving=(WorkerId("w02"), WorkerId("w03")))
    found = verdict(seen)
    assert (found.workers, found.wanted, found.keep, found.start) == (2, 3, ("w02",), ())


# --- what is no reason to grow


def test_while_key_groups_are_blocked_no_worker_leaves_and_what_others_need_is_added() -> None:
    """The demand of what is blocked is its use, so it asks for no worker itself."""
    blocked = (WorkerId("w01"),)
    found = verdict(facts(4, 0.4, blocked=blocked))
    assert (found.due, found.wanted) == (False, 4)
    assert "key groups at w01 wait for something else than CPU" in found.detail
    assert verdict(facts(4, 3.6, blocked=blocked)).due


def test_collocation_that_may_save_enough_comes_first_unless_the_app_is_over_its_capacity() -> None:
    found = verdict(facts(4, 3.6, saving=1.0))
    assert (found.due, found.detail.endswith("which saves 1.00 cores; potential plan: one pass")) == (False, True)
    assert verdict(facts(4, 3.6, saving=0.5)).due
    assert verdict(facts(4, 4.1, saving=3.0)).due


def test_an_unknown_capacity_is_a_reason_to_stay() -> None:
    found = verdict(facts(4, 3.9, unmeasured=(WorkerId("w09"),)))
    assert (found.direction, found.wanted) == (SizeDirection.STAY, 4)
    assert found.detail.endswith("the capacity of w09 is unknown")


@pytest.mark.parametrize(
    ("rate", "behind", "at", "vain"),
    [
        (304.0, 1.0, 700.0, True),
        (320.0, 1.0, 700.0, False),  # 10 % of the expected growth by a third
        (304.0, 0.1, 700.0, False),  # it keeps up, so nothing holds its rate down
        (304.0, 1.0, 950.0, False),  # too early to tell
        (304.0, 1.0, -3000.0, False),  # an hour later one more is tried
    ],
)
def test_scaling_that_did_not_raise_the_rate_stops(rate: float, behind: float, at: float, *, vain: bool) -> None:
    grown = (SizeChange(at=at, before=3, after=4, rate=300.0),)
    found = verdict(facts(4, 3.9, rate=rate, behind=behind), changes=grown)
    assert (found.in_vain, found.due) == (vain, not vain)


def test_only_so_many_changes_are_made_in_an_hour() -> None:
    changes = tuple(SizeChange(at=1000.0 - 60.0 * n, before=5, after=4, rate=1.0) for n in range(6, 0, -1))
    found = verdict(facts(4, 3.6), changes=changes)
    assert (found.due, found.detail.endswith("6 changes in the last hour, and 6 may be")) == (False, True)
    assert verdict(facts(4, 3.6, 1000.0 + 3600.0), changes=changes).due


# --- in


def test_below_the_band_those_with_the_least_state_leave() -> None:
    found = verdict(facts(6, 1.8))
    assert (found.direction, found.wanted, found.drain) == (SizeDirection.IN, 3, ("w00", "w01", "w02"))
    assert found.desired == 6, "whoever takes workers away must wait until they are empty"
    advised = verdict(facts(6, 1.8), ScalingSettings(mode=Mode.ADVISE))
    assert advised.desired == 3


def test_the_desired_number_falls_only_when_those_that_leave_are_empty() -> None:
    leaving = (WorkerId("w02"),)
    for key_groups, desired in ((3, 3), (0, 2)):
        gone = worker(2, stays=False, key_groups=key_groups)
        seen = replace(facts(2, 1.2), workers=(worker(0), worker(1), gone), leaving=leaving)
        assert verdict(seen).desired == desired


def test_only_workers_that_can_be_started_again_leave_and_never_too_many() -> None:
    kept = replace(facts(4, 0.4), workers=tuple(worker(n, removable=False) for n in range(4)))
    found = verdict(kept)
    assert (found.direction, found.drain) == (SizeDirection.STAY, ())
    assert "no agent could start any of them again" in found.detail
    assert verdict(facts(4, 0.4)).wanted == 2, "60 % of four are two"
    assert verdict(facts(4, 0.4), replace(ACT, min_workers=3)).wanted == 3
    assert verdict(facts(1, 0.1)).direction is SizeDirection.STAY


def test_a_smaller_cluster_must_be_balanceable() -> None:
    """Four workers at 30 %: two would be at 60 %, unless one key group alone needs more than a worker may have."""
    loads = np.array([0.84, *[0.01] * 36])
    assert verdict(facts(4, float(loads.sum()), loads=loads)).wanted == 2
    loads = np.array([0.9, *[0.01] * 30])
    heavy = verdict(facts(4, float(loads.sum()), loads=loads))
    assert (heavy.direction, "could not be balanced below 85%" in heavy.detail) == (SizeDirection.STAY, True)


def test_a_smaller_cluster_must_survive_the_loss_of_a_host() -> None:
    """Three workers at 39 %: two would be at 58 %, and the loss of one would leave the other with 117 %."""
    assert verdict(facts(3, 1.17)).wanted == 2
    warned = verdict(facts(3, 1.17, standbys=1))
    assert (warned.direction, warned.workers) == (SizeDirection.STAY, 3)
    assert "one worker" not in warned.detail
    assert "2 workers would be at 117% at least after the loss of a host, above 100%" in warned.detail


def test_no_worker_leaves_while_another_one_does() -> None:
    seen = replace(facts(3, 0.6), workers=(*facts(3, 0.6).workers, worker(3, stays=False)), leaving=(WorkerId("w03"),))
    found = verdict(seen)
    assert (found.due, "waiting until w03 is drained" in found.detail) == (False, True)


# --- an operator's word


def test_an_operators_word_needs_no_delay_and_no_demand() -> None:
    settings_ = replace(ACT, mode=Mode.OFF)
    more, _ = judge(facts(4, 2.8), settings_, word=word(6), frozen="[plans] freeze holds")
    assert (more.due, more.wanted, len(more.start), more.desired) == (True, 6, 2, 6)
    assert more.detail.endswith(", wanted 6: ann@desk wants 6: a sale"), (
        "since when the demand asks for it says nothing"
    )
    fewer, _ = judge(facts(4, 2.8), settings_, word=word(2))
    assert (fewer.due, fewer.drain) == (True, ("w00", "w01"))
    same, need = judge(facts(4, 3.9), settings_, word=word(4))
    assert (same.due, same.direction, need) == (False, SizeDirection.STAY, None)


def test_a_word_cannot_remove_what_no_agent_can_start_again() -> None:
    kept = replace(facts(3, 1.0), workers=(worker(0), *(worker(n, removable=False) for n in (1, 2))))
    found, _ = judge(kept, ACT, word=word(1))
    assert (found.wanted, found.drain) == (2, ("w00",))
    assert "no agent could start any other worker again" in found.detail


# --- freeze windows


def test_a_freeze_is_a_cron_expression_of_minutes_in_a_time_zone() -> None:
    office = CronPeriod(expression="* 9-17 * * mon-fri", timezone="Europe/Berlin")
    monday_0830_utc = 1_790_584_200.0  # 28 September 2026, 10:30 in Berlin
    assert office.covers(monday_0830_utc)
    assert not office.covers(monday_0830_utc - 2 * 3600)
    assert not office.covers(monday_0830_utc - 24 * 3600), "a Sunday"
    times = PlanTimes(freeze=("* 9-17 * * mon-fri",), windows=("0 1 * * * for 1h",), timezone="Europe/Berlin")
    found = verdict(facts(4, 3.6), frozen=times.frozen(monday_0830_utc))
    assert (found.due, found.detail.partition(", but ")[2]) == (
        False,
        "[plans] freeze holds: * 9-17 * * mon-fri (Europe/Berlin)",
    )
    assert verdict(facts(4, 3.6), frozen=times.frozen(monday_0830_utc - 2 * 3600)).due, "windows are for plans"


@pytest.mark.parametrize(("expression", "zone"), [("* 25 * * *", "UTC"), ("soon", "UTC"), ("* * * * *", "Mars/Base")])
def test_a_freeze_that_cannot_be_read_is_refused(expression: str, zone: str) -> None:
    with pytest.raises(BadMessage, match="found"):
        CronPeriod(expression=expression, timezone=zone)


# --- properties


@given(st.lists(st.floats(0.0, 2.0), max_size=60), st.lists(st.floats(0.01, 2.0), min_size=1, max_size=8))
@example([1.5, 1.5, 1.0625, 0.5], [2.0, 2.0, 1.5])
def test_what_is_said_to_fit_fits(loads: list[float], room: list[float]) -> None:
    """The witness: the heaviest first, each on the worker with the smallest share, of several on the smallest."""
    if not can_be_spread(np.array(loads), room):
        return
    taken = [0.0] * len(room)
    for load in sorted(loads, reverse=True):
        place = min(range(len(room)), key=lambda each: (taken[each] / room[each], room[each]))
        taken[place] += load
    assert all(used <= most * (1.0 + 1e-6) for used, most in zip(taken, room, strict=True))


@given(st.integers(1, 12), st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.floats(0.0, 0.2))
def test_more_demand_never_wants_fewer_workers(workers: int, one: float, other: float, fixed: float) -> None:
    less, more = sorted((one, other))
    wanted = [verdict(facts(workers, demand, fixed=fixed)).wanted for demand in (less, more)]
    assert wanted[0] is not None
    assert wanted[1] is not None
    assert wanted[0] <= wanted[1]


@given(st.integers(2, 20), st.integers(1, 4), st.floats(0.1, 10.0))
def test_the_bound_after_a_loss_is_what_even_survivors_have(workers: int, per_host: int, demand: float) -> None:
    placed = [worker(n, host=HostId(f"h{n // per_host}")) for n in range(workers)]
    bound = bound_after_loss(facts(workers, demand), placed)
    survivors = workers - min(per_host, workers)
    assert bound == pytest.approx(demand / survivors if survivors else 0.0)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.floats(0.42, 0.83), st.floats(0.0, 0.04), st.integers(0, 2**32))
def test_noise_within_the_band_changes_nothing_in_half_an_hour(
    workers: int, level: float, noise: float, seed: int
) -> None:
    rng = random.Random(seed)
    low, high = 0.4 * workers, 0.85 * workers
    fleet = Fleet(lambda _: min(high, max(low, workers * rng.gauss(level, noise))), workers=workers)
    assert fleet.run(HALF_HOUR) == []


def _varying(rng: random.Random, level: float, noise: float, _: float) -> float:
    return level * rng.gauss(1.0, noise)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.2, 30.0), st.floats(0.0, 0.15), st.integers(0, 2**32), st.floats(0.0, 0.1))
def test_whatever_the_level_noise_never_lets_the_size_flap(level: float, noise: float, seed: int, fixed: float) -> None:
    """With an hour's delay to shrink, and with one of half a minute: once the size has fallen, it never rises again."""
    for shrink_s in (3600.0, 30.0):
        rng = random.Random(seed)
        quick = replace(ACT, scale_down_delay_s=shrink_s)
        fleet = Fleet(partial(_varying, rng, level, noise / 3), workers=4, settings=quick, fixed=fixed)
        sizes = [4, *(size for _, size in fleet.run(HALF_HOUR))]
        turns = [after - before for before, after in pairwise(sizes)]
        assert all(turn > 0 for turn in turns) or all(turn < 0 for turn in turns), sizes


def test_a_load_that_triples_and_falls_back_leads_to_one_way_up_and_one_way_down() -> None:
    quick = replace(ACT, scale_down_delay_s=300.0, min_workers=2)
    made = Fleet(lambda at: 4.5 if 600.0 < at <= 2400.0 else 1.5, workers=3, settings=quick).run(7200.0)
    assert [size for _, size in made] == [6, 3]
    assert made[0][0] <= 640.0
    assert 2700.0 <= made[-1][0] <= 2730.0


def test_workers_that_rules_need_stay() -> None:
    """Two of ten workers are a pool: one may leave while the other carries the pool, and neither with standbys."""
    pair = frozenset({WorkerId("w00"), WorkerId("w01")})
    light = facts(10, 1.0, pools=(Pool(rules=("fast",), workers=pair, demand=0.2),))
    assert {each.id for each in leavers(light, ACT).workers} & pair == {WorkerId("w00")}
    heavy = replace(light, pools=(replace(light.pools[0], demand=1.0),))
    assert leavers(heavy, ACT).obstacle == "9 workers would be too few for what fast allow"
    assert leavers(replace(light, standbys=1), ACT).obstacle == "9 workers would be too few for what fast allow"


def test_a_worker_that_rules_keep_from_being_emptied_stays_and_others_leave() -> None:
    """The cheapest ones are tied; those that come after them may leave."""
    workers = tuple(worker(number, tied=number < 3) for number in range(10))
    gone = leavers(replace(facts(10, 1.0), workers=workers), ACT).workers
    assert [worker.id for worker in gone] == [f"w{number:02}" for number in range(3, 9)], "six of ten at most"
    all_tied = replace(facts(2, 0.1), workers=tuple(worker(number, tied=True) for number in range(2)))
    assert leavers(all_tied, ACT).obstacle == "rules keep key groups on w00, w01"
    said = verdict(all_tied, word=word(1))
    assert (said.drain, said.detail.partition("a sale; ")[2]) == ((), "rules keep key groups on w00, w01")


# ---- the size of an app when its demand is forecast


def ahead(soon: float | None = None, later: float | None = None) -> Ahead:
    made = [
        None if cores is None else Peak(cores=cores, in_s=120.0, error=0.1, last_error=0.5) for cores in (soon, later)
    ]
    return Ahead(soon=made[0], later=made[1])


def test_a_peak_that_is_forecast_is_met_ahead() -> None:
    found = verdict(facts(4, 2.0, ahead=ahead(soon=4.9)))
    assert (found.direction, found.wanted, found.due) == (SizeDirection.OUT, 7, True), "4.9 / 0.7"
    said = "demand above 85% by the forecast of 4.90 cores in 2 min (mean error 0.10 cores, of the last value 0.50)"
    assert said in found.detail
    assert not judge(facts(4, 2.0, ahead=ahead(soon=4.9)), ACT)[0].due, "the delay holds for forecasts too"


def test_no_worker_leaves_before_a_peak_that_is_forecast() -> None:
    calm = facts(4, 1.0)
    assert verdict(calm).wanted == 2
    kept = verdict(replace(calm, ahead=ahead(later=2.8)))
    assert (kept.wanted, kept.due) == (4, False)
    assert kept.detail.endswith(
        "demand below 40%, but a smaller cluster would be above the target at the forecast of 2.80 cores in 2 min "
        "(mean error 0.10 cores, of the last value 0.50)"
    )
    assert verdict(replace(calm, ahead=ahead(later=2.0))).wanted == 3, "as many leave as the peak allows"


def test_an_operators_word_goes_before_a_forecast() -> None:
    found = verdict(facts(4, 2.0, ahead=ahead(soon=9.0)), word=word(4))
    assert (found.direction, found.wanted) == (SizeDirection.STAY, 4)
