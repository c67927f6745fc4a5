"""Which workers stand by: on other hosts, stable, where the least is to be expected."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.standbys import instance
from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, a_node, a_worker, kg, owned, plannable
from tests.controller.decider.deciders import BALANCED, decider, execution, window, with_all
from tests.narrow import not_none, of_type
from trimtab_agent.engines.faust.group.placing import PlacingReason, place
from trimtab_controller.decider.memory.standby_choice import FOLLOWING_SHARE, Following, StandbyRows
from trimtab_controller.decider.memory.standbys import LEAST_LOAD, MOST, SAMPLES, FollowingCosts, StandbyRounds
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import FixedWorker, SmoothedView, Worker
from trimtab_controller.execution.state import placement_of
from trimtab_models.standbys.problem import StandbyBudget
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import NodeWindow

PLENTY = StandbyBudget()


def view(
    workers: list[Worker],
    owners: list[str],
    loads: list[float] | None = None,
    size: int | None = 100,
    *,
    megabytes: list[int] | None = None,
) -> SmoothedView:
    """Key groups 0, 1, ... at these owners."""
    rows = (
        owned(kg(at), owner, loads[at] if loads else 10.0, megabytes[at] * 1_000_000 if megabytes else size)
        for at, owner in enumerate(owners)
    )
    return plannable(workers, rows)


def placed(seen: SmoothedView, standbys: dict[int, tuple[str, ...]] | None = None) -> Placement:
    bare = placement_of("c", APP, Epoch(1, 1), seen.owners, None)
    rows = {
        kg(at): (seen.owners[kg(at)], *map(WorkerId, names))
        for at, names in (standbys or {}).items()
        if kg(at) in seen.owners
    }
    return bare.changed(Epoch(1, 2), rows)


def choose_standbys(seen: SmoothedView, placement: Placement | None, wanted: int, budget: StandbyBudget) -> StandbyRows:
    return Following.of(seen, placement).choose(seen, wanted, budget)


def count_missing(seen: SmoothedView, placement: Placement, wanted: int) -> int:
    return Following.of(seen, placement).missing(seen, wanted)


THREE = [a_worker("a", "h0"), a_worker("b", "h1"), a_worker("c", "h2")]


@st.composite
def situations(draw: st.DrawFn) -> tuple[SmoothedView, Placement, int]:
    count = draw(st.integers(1, 6))
    hosts = draw(st.integers(1, count))
    workers = [
        a_worker(f"w{at}", f"h{at % hosts}", draw(st.sampled_from([0.5, 1.0])), draining=draw(st.booleans()))
        for at in range(count)
    ]
    names = [each.id for each in workers]
    owners = draw(st.lists(st.sampled_from(names), min_size=1, max_size=12))
    loads = draw(st.lists(st.floats(0.0, 50.0), min_size=len(owners), max_size=len(owners)))
    seen = view(workers, list(owners), loads)
    any_name = st.sampled_from([*names, WorkerId("gone")])
    before = {
        at: tuple(name for name in draw(st.lists(any_name, max_size=4, unique=True)) if name != owner)
        for at, owner in enumerate(owners)
    }
    return seen, placed(seen, before), draw(st.integers(0, 3))


def _faults(seen: SmoothedView, placement: Placement, wanted: int) -> list[str]:
    """What is wrong with a placement whose every gap could be filled: a second opinion, key group by key group."""
    faults = []
    able = {each.id: each.host for each in seen.workers if not each.draining}
    for key_group, owner in seen.owners.items():
        row = placement.of(key_group.operator, key_group.partition)
        host = seen.hosts[owner]
        apart = {able[name] for name in able} - {host}
        places = [able.get(name) for name in row[1:]] if apart else list(row[1:])
        due = min(wanted, len(apart) if apart else len([name for name in able if name != owner]))
        if row[0] != owner or len(row) != 1 + due or not set(row[1:]) <= able.keys() or owner in row[1:]:
            faults.append(f"{key_group}: {row}, expected {due} standbys of {sorted(able)} for {owner}")
        if len(set(places)) != len(places) or (apart and host in places):
            faults.append(f"{key_group}: {row} is not apart: {places}")
    return faults


def chosen(found: StandbyRows) -> dict[int, tuple[str, ...]]:
    """Standbys by partition, of the rows that change."""
    return {key_group.partition: row[1:] for key_group, row in found.rows.items()}


@given(situations())
def test_every_gap_is_filled_with_what_fits_and_what_fits_stays(
    situation: tuple[SmoothedView, Placement, int],
) -> None:
    seen, before, wanted = situation
    found = choose_standbys(seen, before, wanted, PLENTY)
    after = before.changed(Epoch(1, 3), found.rows)
    assert _faults(seen, after, wanted) == []
    assert found.missing == count_missing(seen, after, wanted) == 0
    assert choose_standbys(seen, after, wanted, PLENTY).rows == {}, "stable"
    assert choose_standbys(seen, before, wanted, PLENTY) == found, "deterministic"


@given(situations(), st.integers(1, 3))
def test_rounds_within_a_budget_come_to_the_same_end(situation: tuple[SmoothedView, Placement, int], each: int) -> None:
    seen, placement, wanted = situation
    for _ in range(40):
        found = choose_standbys(seen, placement, wanted, StandbyBudget(worker_changes=each))
        begun: Counter[str] = Counter()
        for key_group, row in found.rows.items():
            old: Owners = placement.of(key_group.operator, key_group.partition)
            begun.update(set(row[1:]) - set(old))
        assert max(begun.values(), default=0) <= each
        assert found.added == begun.total()
        if not found.rows:
            break
        placement = placement.changed(Epoch(1, 3), found.rows)
    assert _faults(seen, placement, wanted) == []


@given(situations())
def test_the_group_gives_exactly_the_plan_when_any_worker_dies(situation: tuple[SmoothedView, Placement, int]) -> None:
    """What N-1 states is what the plug-in's assignor does: the first standby owns, whatever else it knows."""
    seen, before, _ = situation
    after = before.changed(Epoch(1, 3), choose_standbys(seen, before, 1, PLENTY).rows)
    rows = after.owners[OPERATOR]
    previous = {key_group.partition: owner for key_group, owner in seen.owners.items()}
    for dead in seen.workers:
        members = [each.id for each in seen.workers if each.id != dead.id]
        living = [[name if name in members else None for name in row] for row in rows]
        if not members:
            continue
        given_to = place(living, partitions=len(rows), previous=previous, members=members)
        for partition, row in enumerate(rows):
            if row[0] != dead.id:
                assert given_to[partition] == (row[0], PlacingReason.PLACED)
            elif len(row) > 1:
                assert given_to[partition] == (row[1], PlacingReason.STANDBY)


def test_what_a_loss_leads_to_is_told_with_its_bound() -> None:
    seen = view(THREE, ["a", "a", "b", "c"], [20.0, 20.0, 30.0, 30.0])
    known = Following.of(seen, placed(seen, {0: ("b",), 1: ("c",), 2: ("c",), 3: ("b",)}))
    good = not_none(known.survival(seen, 1, peaks=True))
    assert (good.lost, good.worker) == (("b",), "c"), "30 of its own, 30 of b, and it follows 1"
    assert good.worst_pct == pytest.approx(30 + 30 + FOLLOWING_SHARE * 20)
    assert good.bound_pct <= good.worst_pct
    busy = replace(seen, fixed_use=15.0)
    more = 15.0 - FOLLOWING_SHARE * 100.0 / 3
    assert not_none(known.survival(busy, 1, peaks=True)).worst_pct == pytest.approx(good.worst_pct + more), (
        "polling and the like"
    )
    least = not_none(Following.of(seen, placed(seen, {0: ("b",)})).survival(seen, 1, peaks=True))
    assert (least.missing, least.worst_pct) == (3, pytest.approx(50.0)), (
        "30 of its own and 20 of a; who takes the other 20 is open"
    )
    assert str(least) == "at least 50 % at b after losing a; without a standby: 3 of the key groups"
    alone = view(THREE[:1], ["a"])
    assert Following.of(alone, placed(alone)).survival(alone, 1, peaks=True) is None


def test_what_a_lost_worker_followed_is_counted_also_where_one_worker_is_left() -> None:
    seen = view(THREE, ["a", "a", "b", "c"])
    following = Following.of(seen, placed(seen, {0: ("b",), 1: ("c",), 2: ("gone", "a")}))
    assert following.on_lost({WorkerId("a"), WorkerId("b"), WorkerId("c")}) == 0
    assert following.on_lost({WorkerId("a"), WorkerId("b")}) == 2, "1 lacks its standby, and 3 its owner"
    alone = view(THREE[:1], ["a", "a"])
    assert Following.of(alone, placed(alone, {0: ("gone",)})).on_lost({WorkerId("a")}) == 0


def test_n_minus_1_is_bound_tightly_where_apps_are_few() -> None:
    """Large key groups: with divisible ones the survivors could be loaded by 2.8 points less."""
    found = instance(4, 80, 5, balanced=True)
    owners = ["abcd"[owner] for owner in found.owner.tolist()]
    seen = view([*THREE, a_worker("d", "h3")], owners, found.load.tolist())
    seen = replace(seen, standbys=1)
    rows = chosen(choose_standbys(seen, placed(seen), 1, PLENTY))
    rounds, bounds = StandbyRounds(), []
    for others in (0, 10):
        away = NotReady(reason=SkipReason.NO_WORKERS, detail="")
        views = {APP: seen} | {AppId(f"other-{number}"): away for number in range(others)}
        rounds.observe(views, {APP: placed(seen, rows)})
        bounds.append(rounds.survivals[APP].bound_pct)
        assert bounds[-1] <= rounds.survivals[APP].worst_pct == pytest.approx(76.15, abs=0.1)
    assert bounds == [pytest.approx(75.5, abs=0.3), pytest.approx(73.3, abs=0.1)]


def test_standbys_are_replaced_only_where_that_is_worth_it() -> None:
    seen = view(THREE, ["a"] * 4 + ["b"], [10.0] * 5)
    uneven = Following.of(seen, placed(seen, {0: ("b",), 1: ("b",), 2: ("b",), 3: ("b",), 4: ("c",)}))
    assert uneven.choose(seen, 1, PLENTY).rows == {}
    assert uneven.choose(seen, 1, PLENTY, 30.0).rows == {}
    better = uneven.choose(seen, 1, PLENTY, 5.0)
    assert (better.added, better.replaced, better.missing) == (len(better.rows), len(better.rows), 0)
    assert Counter(row[1] for row in better.rows.values()) == {"c": len(better.rows)}
    assert 2 <= len(better.rows) <= 3


def around_c(seen: SmoothedView) -> SmoothedView:
    """The same view while c is fixed and its load assumed."""
    kept = tuple(row for row in seen.key_groups if row.owner == "c")
    fixed = FixedWorker(id=WorkerId("c"), reason=SkipReason.WORKER_MISSING, detail="", worker=THREE[2])
    planned = tuple(row for row in seen.key_groups if row.owner != "c")
    return replace(seen, workers=tuple(THREE[:2]), key_groups=planned, fixed=(fixed,), kept=kept)


def test_a_loss_is_rated_with_the_assumed_loads_of_fixed_workers() -> None:
    whole = view(THREE, ["a", "a", "b", "c"], [20.0, 20.0, 30.0, 30.0])
    placement = placed(whole, {0: ("b",), 1: ("c",), 2: ("c",), 3: ("b",)})
    seen = around_c(whole)
    found = Following.of(seen, placement).survival(seen, 1, peaks=True)
    expected = Following.of(whole, placement).survival(whole, 1, peaks=True)
    assert found is not None
    assert expected is not None
    assert (found.lost, found.worker) == (("b",), "c")
    assert found.worst_pct == pytest.approx(expected.worst_pct)
    bare = placed(whole, {0: ("b",), 1: ("c",), 2: ("c",)})
    found = not_none(Following.of(seen, bare).survival(seen, 1, peaks=True))
    assert found.missing == 1, "a kept key group lacks one"
    assert choose_standbys(seen, bare, 1, PLENTY).rows == {}, "and gets none before its owner is back"


def test_standbys_are_replaced_around_a_fixed_worker() -> None:
    """All that a owns would be inherited by b, and d could take some; what c owns stays as it is."""
    four = [*THREE, a_worker("d", "h3")]
    whole = view(four, ["a"] * 4 + ["c"] * 2, [10.0] * 6)
    placement = placed(whole, {**dict.fromkeys(range(4), ("b",)), 4: ("b",), 5: ("b",)})
    seen = replace(around_c(whole), workers=(four[0], four[1], four[3]))
    found = Following.of(seen, placement).choose(seen, 1, PLENTY, 5.0)
    assert found.replaced == len(found.rows) > 0
    assert set(found.rows.values()) == {("a", "d")}


# ---- what following costs is measured by app, and counts in N-1


H0 = HostId("h0")


def node(worker: WorkerId, following: float | None, *, app: AppId = APP, host: HostId = H0) -> NodeWindow:
    return a_node(worker, host=host, app=app, following=following)


def test_three_windows_are_needed_and_the_median_counts() -> None:
    costs = FollowingCosts()
    for following, known in ((0.02, None), (0.50, None), (0.04, 0.1)):
        costs.observe(APP, {W0: 40.0, W1: 0.0}, [node(W0, following), node(W1, 0.3)], {})
        assert costs.of(APP) == (None if known is None else pytest.approx(known)), "restores are above the median"
    assert costs.of(AppId("other")) is None


def test_workers_that_do_not_say_it_or_are_of_another_app_do_not_count() -> None:
    costs = FollowingCosts()
    rows = [node(W0, 0.04), node(W1, None), node(WorkerId("w2"), 0.9, app=AppId("other"))]
    for _ in range(3):
        costs.observe(APP, {W0: 20.0, W1: 500.0, WorkerId("w2"): 20.0}, rows, {H0: 0.5})
    assert costs.of(APP) == pytest.approx(0.1), "a core of a slow host is half a reference core"


def test_too_little_load_says_nothing_and_the_share_is_limited() -> None:
    costs = FollowingCosts()
    for _ in range(3):
        costs.observe(APP, {W0: 0.9 * LEAST_LOAD}, [node(W0, 0.3)], {})
    assert costs.of(APP) is None
    for _ in range(3):
        costs.observe(APP, {W0: LEAST_LOAD}, [node(W0, 0.3)], {})
    assert costs.of(APP) == MOST
    for _ in range(SAMPLES):
        costs.observe(APP, {W0: 10.0}, [node(W0, 0.03)], {})
    assert costs.of(APP) == pytest.approx(0.3), "only the last windows count"
    costs.keep([])
    assert costs.of(APP) is None


def test_the_measured_share_counts_when_standbys_are_chosen() -> None:
    present = execution(BALANCED)
    rows = {kg(0): (W0, W1), kg(1): (W1, W0)}
    placement = present.placements[APP].changed(Epoch(1, 5), rows)
    made = decider(replace(present, placements={APP: placement}))
    shares = []
    for end_s in (1010.0, 1020.0, 1030.0, 1040.0):
        made.on_event(end_s + 1.0, with_all(window(BALANCED, end_s), standbys=1, following=0.05))
        view = of_type(SmoothedView, made.known.views[APP])
        problem = Following.of(view, placement).problem(view, 1, StandbyBudget(), 0.0)
        shares.append(float((problem.follow / problem.load)[0]))
    measured = made.known.following[APP]
    assert measured == pytest.approx(200.0 * 0.05 / float(view.owned.load.sum()))
    assert shares == pytest.approx([FOLLOWING_SHARE] * 3 + [measured])


def knowing(seen: SmoothedView, **changes: object) -> Restores:
    """Restores of 10 MB a second on every host, four at a time."""
    return Restores(cores=dict.fromkeys({each.host for each in seen.workers}, 4.0), **changes)  # type: ignore[arg-type]


def restored_on(found: StandbyRows) -> dict[str, int]:
    """MB that hosts restore for new standbys."""
    sums: Counter[str] = Counter()
    for of in found.lacking.values():
        sums.update({host: round(size / 1e6) for host, size in of.items()})
    return dict(sums)


def test_large_states_are_not_all_restored_on_one_host() -> None:
    large = view(THREE, ["a"] * 4, [12.0, 11.5, 11.0, 10.5], megabytes=[100, 1, 1, 100])
    following = Following.of(large, placed(large))
    by_loads = following.choose(large, 1, PLENTY)
    assert restored_on(by_loads) == {"h1": 200, "h2": 2}
    assert by_loads.warm is None
    sooner = following.choose(large, 1, PLENTY, restores=knowing(large))
    assert restored_on(sooner) == {"h1": 101, "h2": 101}
    assert sooner.warm is not None
    assert sooner.warm.seconds == pytest.approx(10.0, rel=0.3)
    busy = following.choose(large, 1, PLENTY, restores=knowing(large, running={HostId("h1"): [300_000_000]}))
    assert restored_on(busy)["h1"] < 100, "what it restores already counts"


def test_loads_after_a_loss_come_first_and_small_states_stay() -> None:
    large = view(THREE, ["a"] * 4, [30.0, 20.0, 10.0, 0.1], megabytes=[100, 1, 1, 1])
    following = Following.of(large, placed(large))
    before = following.choose(large, 1, PLENTY)
    found = following.choose(large, 1, PLENTY, restores=knowing(large))
    heavy = {at: names for at, names in chosen(before).items() if at < 3}
    assert heavy == {at: names for at, names in chosen(found).items() if at < 3}
    small = view(THREE, ["a"] * 4, [12.0, 11.5, 11.0, 10.5], 1_000)
    following = Following.of(small, placed(small))
    found = following.choose(small, 1, PLENTY, restores=knowing(small))
    assert found.rows == following.choose(small, 1, PLENTY).rows, "a second earlier is worth nothing"


def test_a_new_standby_goes_to_a_copy_on_a_disk_and_restores_the_rest() -> None:
    seen = view(THREE, ["a"], [10.0], 100_000_000)
    following = Following.of(seen, placed(seen))
    (before,) = chosen(following.choose(seen, 1, PLENTY)).values()
    other = next(each for each in THREE if each.id not in (WorkerId("a"), *before))
    held = Held(on_disk={kg(0): {other.id: 0.25}})
    found = following.choose(seen, 1, PLENTY, restores=knowing(seen, held=held))
    assert chosen(found) == {0: (other.id,)}
    assert found.lacking == {kg(0): {other.host: 25_000_000}}
