"""What a snapshot must bring before anything is decided; whatever is missing is named, none of it becomes a zero."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import END_S, NEEDS, WHOLE, look, owned, reason_of, snapshot
from tests.narrow import not_none, of_type
from trimtab_controller.decider.memory import observe
from trimtab_controller.decider.memory.evaluate import evaluate
from trimtab_controller.decider.memory.observe import Delays, Liveness, check_cluster, held_apps
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import MeasuredView
from trimtab_controller.execution.state import placement_of
from trimtab_controller.execution.windows import ownership
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import KeyGroupWindow, NodeWindow, Snapshot


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes": (node(W0), node(W1, state=WorkerState.RECOVERING))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.REBALANCING))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.AWAY))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0, steering=False), node(W1))}, SkipReason.WORKER_NOT_STEERING),
        ({"nodes": (node(W0, complete=False), node(W1))}, SkipReason.WORKER_INCOMPLETE),
        ({"nodes": (node(W0),)}, SkipReason.WORKER_MISSING),
        ({"key_groups": (owned(0, W0), owned(2, W1))}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, W0))}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": ()}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, WorkerId("w9")), owned(2, W1))}, SkipReason.OWNER_UNKNOWN),
        ({"key_groups": (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1))}, SkipReason.LOAD_UNKNOWN),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], reason: SkipReason) -> None:
    assert reason_of(look(replace(WHOLE, **changes))) is reason  # type: ignore[arg-type]


def test_a_load_that_is_unknown_names_its_worker_and_the_reason() -> None:
    nodes = (node(W0, unknown="its agents' steps take 0.3 s"), node(W1))
    key_groups = (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1, cpu=None))

    found = of_type(NotReady, look(replace(WHOLE, nodes=nodes, key_groups=key_groups)))
    assert found.detail == (
        "workers that could not measure their loads: w1 (it does not say why), w0 (its agents' steps take 0.3 s)"
    )


@pytest.mark.parametrize(
    ("partitions", "operators", "fits"), [(30, 1, True), (31, 1, False), (1, 1000, True), (1, 1001, False)]
)
def test_an_app_whose_placement_nobody_could_read_is_too_large(
    monkeypatch: pytest.MonkeyPatch, partitions: int, operators: int, fits: bool
) -> None:
    if operators == 1:
        monkeypatch.setattr(observe, "MAX_KEY_GROUPS", 30)
    names = [OperatorId(f"o{at}") for at in range(operators)]
    rows = [replace(owned(0, W0), key_group=KeyGroup(APP, each, at)) for each in names for at in range(partitions)]
    found = look(snapshot([node(W0)], rows), placement=None)
    if fits:
        assert isinstance(found, MeasuredView)
    else:
        assert reason_of(found) is SkipReason.APP_TOO_LARGE


def test_one_wild_partition_number_costs_no_list_of_all_that_are_missing_below_it() -> None:
    wild = [replace(owned(100_000, W0), key_group=KeyGroup(APP, OperatorId(f"o{at}"), 100_000)) for at in range(20)]
    tracemalloc.start()
    try:
        found = look(replace(WHOLE, key_groups=(*WHOLE.key_groups, *wild)))
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert isinstance(found, NotReady)
    named = ", ".join(f"o0/{partition}" for partition in range(5))
    assert found.detail == f"2000000 key groups were not reported: {named} and 1999995 more"


def test_before_the_first_placement_a_gap_is_still_a_gap() -> None:
    assert isinstance(look(WHOLE, placement=None), MeasuredView)
    assert (
        reason_of(look(replace(WHOLE, key_groups=(owned(0, W0), owned(2, W1))), None)) is SkipReason.KEY_GROUPS_MISSING
    )
    assert reason_of(look(snapshot([], []), None)) is SkipReason.NO_WORKERS


def test_a_worker_that_left_long_ago_and_owns_nothing_does_not_block() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.AWAY)], [owned(0, W0), owned(1, W0), owned(2, W0)])
    liveness = Liveness()
    liveness.observe(seen, [W0, W1])
    assert reason_of(look(seen, liveness=liveness)) is SkipReason.WORKER_MISSING, "it may come back any moment"
    later = replace(seen, start_ms=1_060_000, end_ms=1_070_000)
    liveness.observe(later, [W0, W1])
    view = of_type(MeasuredView, look(later, liveness=liveness))
    assert [worker.id for worker in view.workers] == [W0]


# ---- what the workers declare


TOTALS = OperatorId("totals")


def declaring(*operators: dict[OperatorId, int] | None) -> tuple[NodeWindow, ...]:
    return tuple(node(worker, operators=said) for worker, said in zip((W0, W1), operators, strict=True))


def of(operator: OperatorId, *owners: WorkerId) -> list[KeyGroupWindow]:
    return [replace(owned(at, owner), key_group=KeyGroup(APP, operator, at)) for at, owner in enumerate(owners)]


def seen_with(declared: tuple[NodeWindow, ...], *rows: KeyGroupWindow) -> Snapshot:
    return replace(WHOLE, nodes=declared, key_groups=rows)


def test_the_key_groups_are_those_that_the_workers_declare_whatever_the_placement_says() -> None:
    renamed = {TOTALS: 2}
    found = of_type(
        MeasuredView, look(seen_with(declaring(renamed, renamed), *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1)))
    )
    assert found.owners == {KeyGroup(APP, TOTALS, 0): W0, KeyGroup(APP, TOTALS, 1): W1}, "of before the change: none"


def test_of_an_operator_with_fewer_key_groups_than_before_the_others_are_gone() -> None:
    found = of_type(MeasuredView, look(seen_with(declaring({OPERATOR: 2}, {OPERATOR: 2}), *of(OPERATOR, W0, W1, W1))))
    assert found.owners == {kg(0): W0, kg(1): W1}


def test_workers_that_declare_different_operators_are_named_with_what_they_declare() -> None:
    sides = declaring({OPERATOR: 3, TOTALS: 2}, {OPERATOR: 4, TOTALS: 2})
    found = of_type(NotReady, look(seen_with(sides, *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1))))
    assert (found.reason, found.detail) == (
        SkipReason.OPERATORS_DIFFER,
        "its workers declare different operators; w0: sums with 3 key groups; w1: sums with 4 key groups",
    )
    found = of_type(NotReady, look(seen_with(declaring({OPERATOR: 3}, {OPERATOR: 3, TOTALS: 2}), *WHOLE.key_groups)))
    assert found.detail.endswith("w0: no more than the others; w1: totals with 2 key groups")


def test_that_workers_differ_is_said_rather_than_that_they_do_not_steer_meanwhile() -> None:
    """The plug-ins see it, too: none hands over while the versions of the app differ."""
    nodes = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {TOTALS: 3}))
    assert reason_of(look(seen_with(nodes, *WHOLE.key_groups))) is SkipReason.OPERATORS_DIFFER
    same = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {OPERATOR: 3}))
    assert reason_of(look(seen_with(same, *WHOLE.key_groups))) is SkipReason.WORKER_NOT_STEERING


def test_workers_that_only_report_are_named_with_their_reasons() -> None:
    reason, w2 = "workers differ in their topics: w0 against w1", WorkerId("w2")
    nodes = (node(w2, steering=False), *(node(name, steering=False, reason=reason) for name in (W0, W1)))
    found = of_type(NotReady, look(replace(WHOLE, nodes=nodes)))
    assert found.detail == f"workers that only report: w2 (no reason is given), w0, w1 ({reason})"
    waiting = replace(WHOLE, nodes=(node(W0, reason="the broker does not know these topics: a"), node(W1)))
    assert isinstance(look(waiting), MeasuredView)


def test_while_an_agent_does_not_say_it_the_placement_tells_the_key_groups() -> None:
    assert isinstance(look(seen_with(declaring({OPERATOR: 3}, None), *WHOLE.key_groups)), MeasuredView)
    renamed = seen_with(declaring({TOTALS: 3}, None), *of(TOTALS, W0, W0, W1))
    assert reason_of(look(renamed)) is SkipReason.KEY_GROUPS_MISSING


def test_two_workers_under_one_name_are_named_with_their_hosts() -> None:
    found = of_type(NotReady, look(replace(WHOLE, nodes=(node(W0, also_on=(HostId("h7"),)), node(W1)))))
    assert (found.reason, found.detail) == (
        SkipReason.WORKER_TWICE,
        "workers that run on several hosts under one name: w0 (h0, h7)",
    )


def test_who_owns_nothing_and_declares_other_operators_stops_no_plan_of_the_others() -> None:
    """Any host may say that it runs the app: its word does not count against that of all owners."""
    foreign = node(WorkerId("w9"), operators={TOTALS: 7})
    nodes = (node(W0, operators={OPERATOR: 3}), node(W1, operators={OPERATOR: 3}), foreign)
    found = of_type(MeasuredView, look(replace(WHOLE, nodes=nodes)))
    assert [worker.id for worker in found.workers] == [W0, W1]
    assert [(each.id, each.reason) for each in found.fixed] == [("w9", SkipReason.OPERATORS_DIFFER)]
    assert found.sizes == {OPERATOR: 3}


def test_owners_that_differ_and_workers_of_an_app_without_a_placement_stop_its_plans() -> None:
    foreign = node(WorkerId("w9"), operators={TOTALS: 7})
    apart = (node(W0, operators={OPERATOR: 3}), node(W1, operators={TOTALS: 3}), foreign)
    assert reason_of(look(replace(WHOLE, nodes=apart))) is SkipReason.OPERATORS_DIFFER
    alike = (node(W0, operators={OPERATOR: 3}), node(W1, operators={OPERATOR: 3}), foreign)
    assert reason_of(look(replace(WHOLE, nodes=alike), placement=None)) is SkipReason.OPERATORS_DIFFER


OTHER = AppId("other")


def test_a_worker_that_was_started_again_with_another_app_is_none_of_this_one() -> None:
    liveness = Liveness()
    seen = replace(WHOLE, nodes=(node(W0), node(W1, app=OTHER)), key_groups=tuple(owned(at, W0) for at in range(3)))
    for part in (WHOLE, seen):
        liveness.observe(part, [W0, W1])
    found = of_type(MeasuredView, look(seen, liveness=liveness))
    assert [worker.id for worker in found.workers] == [W0], "nothing is planned for w1, and nobody waits for it"


def test_an_app_whose_workers_all_have_another_one_now_has_none() -> None:
    nodes = (node(W0, app=OTHER), node(W1, app=OTHER))
    liveness = Liveness()
    liveness.observe(replace(WHOLE, nodes=nodes), [W0, W1])
    found = of_type(NotReady, look(replace(WHOLE, nodes=nodes, key_groups=()), liveness=liveness))
    assert (found.reason, found.detail) == (SkipReason.NO_WORKERS, "no worker reports")


def test_with_a_forgotten_app_go_its_silent_hosts_but_none_on_which_another_one_ran() -> None:
    other, shared = AppId("other"), HostId("h0")
    before = snapshot(
        [node(W0), node(W1, app=other), node(WorkerId("w2"), app=other, host=shared), node(WorkerId("w3"), app=other)],
        [],
    )
    liveness = Liveness()
    liveness.observe(before, [])
    liveness.forget_app(other, reporting=[HostId("h3")])
    assert sorted(liveness.hosts) == ["h0", "h3"], "not h1; h3 reports still"
    liveness.forget_worker(W0, reporting=[])
    assert sorted(liveness.hosts) == ["h3"], "nobody else is known to have run on h0"


# ---- snapshots that are stale or incomplete, and hosts that are lost


def test_an_idle_worker_counts_and_a_stopped_one_does_not() -> None:
    idle = snapshot([node(W0), node(W1)], [owned(0, W0)])
    view = of_type(MeasuredView, look(idle, placement=None))
    assert evaluate(view).worker_loads == {W0: 20.0, W1: 0.0}
    stopped = snapshot([node(W0), node(W1, state=WorkerState.AWAY, app=None)], [owned(0, W0)])
    view = of_type(MeasuredView, look(stopped, placement=None))
    assert [worker.id for worker in view.workers] == [W0]


@pytest.mark.parametrize(
    ("now", "changes", "reason"),
    [
        (END_S + 45.0, {}, None),
        (END_S + 45.1, {}, SkipReason.STALE_SNAPSHOT),
        (END_S, {"hosts_seen": 19}, None),
        (END_S, {"hosts_seen": 18}, SkipReason.LOW_COVERAGE),
        (END_S, {"hosts_seen": 0, "hosts_expected": 0}, SkipReason.LOW_COVERAGE),
    ],
)
def test_stale_and_incomplete_snapshots_are_refused(
    now: float, changes: dict[str, object], reason: SkipReason | None
) -> None:
    found = check_cluster(replace(WHOLE, **changes), now, Liveness(), NEEDS)  # type: ignore[arg-type]
    assert (found and found.reason) == reason


def test_a_window_that_is_old_when_it_comes_may_mean_a_wrong_clock() -> None:
    found = not_none(check_cluster(WHOLE, END_S + 185.0, Liveness(), NEEDS))
    assert found.detail == "the window that has just come ended 185 s ago: Spark is late, or this clock is ahead"


def whole_at(end_s: float) -> Snapshot:
    return replace(WHOLE, start_ms=round(1000 * end_s) - 10_000, end_ms=round(1000 * end_s))


@pytest.mark.parametrize(
    ("ages", "limit_s"),
    [
        ([], 45.0),
        ([30.0, 30.0], 45.0),
        ([30.0, 30.0, 30.0], 75.0),
        ([2.0, 35.0, 30.0], 47.0),
        ([2.0, 35.0, 30.0, 32.0], 75.0),
        ([100.0, 100.0, 100.0], 90.0),
        ([-5.0, -5.0, -5.0], 45.0),
    ],
    ids=["at first", "too few", "late", "late since shortly", "late for longer", "very late", "a clock behind"],
)
def test_windows_that_come_steadily_late_may_be_older(ages: list[float], limit_s: float) -> None:
    delays = Delays()
    for number, age_s in enumerate(ages):
        end_s = END_S + 10.0 * number
        delays = delays.after(end_s + age_s, whole_at(end_s))
    assert delays.allowed_s(45.0) == limit_s


def test_windows_that_come_one_upon_the_other_after_a_pause_do_not_count_as_steadily_late() -> None:
    delays = Delays()
    for number, at in enumerate((END_S + 1.0, END_S + 11.0, END_S + 21.0, END_S + 80.0, END_S + 81.0, END_S + 82.0)):
        delays = delays.after(at, whole_at(END_S + 10.0 * number))
    assert delays.allowed_s(45.0) == 46.0


def test_two_windows_at_a_time_count_by_the_older_one() -> None:
    delays = Delays()
    for number in range(6):
        delays = delays.after(END_S + 20.0 * (number // 2) + 30.0, whole_at(END_S + 10.0 * number))
    assert delays.allowed_s(45.0) == 75.0
    assert check_cluster(WHOLE, END_S + 75.0, Liveness(), NEEDS, delays=delays) is None
    assert reason_of(check_cluster(WHOLE, END_S + 75.1, Liveness(), NEEDS, delays=delays)) is SkipReason.STALE_SNAPSHOT


def test_low_coverage_names_the_hosts_that_no_longer_report() -> None:
    liveness = Liveness()
    liveness.observe(snapshot([node(WorkerId(f"w{index}")) for index in range(5)], []), [])
    seen = snapshot([node(WorkerId(f"w{index}")) for index in range(4)], [], hosts_seen=4, hosts_expected=5)
    found = not_none(check_cluster(seen, END_S, liveness, NEEDS))
    assert found.detail == "4 of 5 hosts reported, 95% needed; no longer: h4"


WORKERS = [WorkerId(f"w{index}") for index in range(5)]


def held(seen: Snapshot, liveness: Liveness, owners: Mapping[KeyGroup, WorkerId] = MappingProxyType({})) -> set[AppId]:
    placements = {APP: placement_of("c", APP, Epoch(1, 1), owners, None)}
    found = held_apps(seen, liveness, placements)
    assert {why.reason for why in found.values()} <= {SkipReason.HOSTS_LOST}
    return set(found)


def test_hold_when_forty_percent_of_the_hosts_are_lost_until_they_count_as_gone() -> None:
    liveness = Liveness()
    liveness.observe(snapshot([node(worker) for worker in WORKERS], []), [])
    four = snapshot([node(worker) for worker in WORKERS[:4]], [])
    assert held(four, liveness) == set()
    three = snapshot([node(worker) for worker in WORKERS[:3]], [])
    assert held(three, liveness) == {APP}
    later = replace(three, start_ms=1_611_000, end_ms=1_621_000)
    liveness.observe(later, [])
    assert held(later, liveness) == set()


def test_an_app_none_of_whose_workers_were_on_lost_hosts_is_not_held() -> None:
    liveness = Liveness()
    here = [node(worker, app=OTHER) for worker in WORKERS[:3]]
    liveness.observe(snapshot([*here, *map(node, WORKERS[3:])], []), [])
    assert held(snapshot(here, []), liveness) == {APP}


@pytest.mark.parametrize(
    ("ended", "new", "taken", "is_held"),
    [
        (0, 0, True, True),  # the network may be to blame
        (2, 0, True, False),
        (2, 0, False, True),  # nobody else has its key groups yet
        (1, 0, True, False),  # one of four is lost
        (0, 1, True, False),  # one is lost, the other has been replaced
    ],
)
def test_hosts_that_ended_in_order_or_were_replaced_are_not_missed_once_others_own_their_key_groups(
    ended: int, new: int, taken: bool, is_held: bool
) -> None:
    """Pods have new names with every deployment."""
    liveness, owners = Liveness(), {kg(0): WORKERS[3], kg(1): WORKERS[4]}
    liveness.observe(snapshot([node(worker) for worker in WORKERS], []), WORKERS)
    gone = tuple(HostId(f"h{3 + index}") for index in range(ended))
    pods = [node(WorkerId(f"w{7 + index}")) for index in range(new)]
    reported = [owned(each.partition, W0) for each in owners] if taken else []
    after = snapshot([*map(node, WORKERS[:3]), *pods], reported, end_ms=1_020_000, ended=gone)
    liveness.observe(after, WORKERS)
    assert held(after, liveness, owners) == ({APP} if is_held else set())
    if ended == 2 and taken:
        whole = snapshot([node(worker) for worker in WORKERS], [], end_ms=1_030_000)
        liveness.observe(whole, WORKERS)
        again = replace(after, end_ms=1_040_000, ended=())
        liveness.observe(again, WORKERS)
        assert held(again, liveness, owners) == {APP}, "they had come back, and now nobody has said why they are away"


@pytest.mark.parametrize("taken", [True, False])
def test_a_fleet_whose_hosts_have_all_been_replaced_is_not_lost(taken: bool) -> None:
    liveness, owners = Liveness(), {kg(index): worker for index, worker in enumerate(WORKERS[:3])}
    liveness.observe(snapshot([node(worker) for worker in WORKERS[:3]], []), WORKERS[:3])
    pods = [WorkerId(f"w{7 + index}") for index in range(3)]
    reported = [owned(each.partition, pods[0]) for each in owners] if taken else []
    after = snapshot(list(map(node, pods)), reported, end_ms=1_020_000)
    liveness.observe(after, WORKERS[:3])
    assert held(after, liveness, owners) == (set() if taken else {APP})


def test_a_successor_holds_too_when_no_host_has_reported_forty_percent_of_the_owners() -> None:
    owners = {kg(0): W0, kg(1): W1}
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    successor = Liveness()
    successor.observe(alone, [W0, W1])
    assert held(alone, successor, owners) == {APP}
    later = replace(alone, start_ms=1_611_000, end_ms=1_621_000)
    successor.observe(later, [W0, W1])
    assert held(later, successor, owners) == set()  # it counts as gone


@pytest.mark.parametrize(("strangers", "is_held"), [(1, False), (2, True)])
def test_two_of_five_owners_that_nobody_reports_are_forty_percent(strangers: int, is_held: bool) -> None:
    seen = snapshot([node(worker) for worker in WORKERS[strangers:]], [])
    successor = Liveness()
    successor.observe(seen, WORKERS)
    owners = {kg(index): worker for index, worker in enumerate(WORKERS)}
    assert held(seen, successor, owners) == ({APP} if is_held else set())
    nobody = replace(seen, nodes=tuple(replace(row, app=OTHER) for row in seen.nodes))
    assert held(nobody, successor, owners) == set(), "nobody runs the app any more"


def test_an_owner_that_was_seen_before_is_a_worker_that_is_away_and_no_lost_host() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    liveness = Liveness()
    liveness.observe(WHOLE, [W0, W1])
    liveness.observe(alone, [W0, W1])
    assert held(alone, liveness, {kg(0): W0, kg(1): W1}) == set()


def test_only_running_workers_say_what_they_own() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.REBALANCING)], [owned(0, W0), owned(2, W1)])
    assert ownership(seen) == {kg(0): W0}
