"""What a snapshot must bring before anything is decided; every lack is named, none becomes a zero."""

import tracemalloc
from dataclasses import replace

import pytest

from trimtab_controller.decider.decide import Settings
from trimtab_controller.decider.evaluate import NOISE_ERRORS, History, evaluate, follow
from trimtab_controller.decider.instance import instance_of
from trimtab_controller.decider.observe import Liveness, Requirements, check_cluster, observe, ownership
from trimtab_controller.decider.view import AppView, Lack, NotReady
from trimtab_controller.execution.state import placement_of
from trimtab_models.instances import decode_snapshot, encode_snapshot
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement, decode_placement, encode_placement
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, PairWindow, Snapshot

APP, OPERATOR = AppId("app"), OperatorId("sums")
W0, W1 = WorkerId("w0"), WorkerId("w1")
NEEDS = Requirements(min_coverage=0.95, max_age_s=45.0, lost_worker_s=60.0)
END_S = 1010.0


def kg(partition: int) -> KeyGroup:
    return KeyGroup(APP, OPERATOR, partition)


def node(worker: WorkerId, **changes: object) -> NodeWindow:
    row = NodeWindow(
        worker=worker,
        host=HostId(f"h{worker[1:]}"),
        app=APP,
        state=WorkerState.RUNNING,
        capacity=0.5,
        covered_s=10.0,
        cpu=0.3,
        complete=True,
        steering=True,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def owned(partition: int, worker: WorkerId, cpu: float | None = 0.1, state_bytes: int | None = 1000) -> KeyGroupWindow:
    return KeyGroupWindow(
        key_group=kg(partition), worker=worker, covered_s=10.0, cpu=cpu, tuples_in_s=1.0, state_bytes=state_bytes
    )


def snapshot(nodes: list[NodeWindow], key_groups: list[KeyGroupWindow], **changes: object) -> Snapshot:
    made = Snapshot(
        cluster="c",
        start_ms=1_000_000,
        end_ms=1_010_000,
        published_ms=1_010_500,
        hosts_seen=20,
        hosts_expected=20,
        watermark_ms=None,
        late_rows=0,
        hosts=tuple(
            HostWindow(host=host, covered_s=10.0, cpu=0.5, cores=1.0, basis=Basis.CONFIG)
            for host in sorted({row.host for row in nodes})
        ),
        nodes=tuple(nodes),
        key_groups=tuple(key_groups),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


WHOLE = snapshot([node(W0), node(W1)], [owned(0, W0), owned(1, W0), owned(2, W1)])
PLACEMENT = placement_of("c", APP, Epoch(1, 1), {kg(0): W0, kg(1): W0, kg(2): W1}, None)


def look(
    seen: Snapshot,
    placement: Placement | None = PLACEMENT,
    draining: frozenset[WorkerId] = frozenset(),
    liveness: Liveness | None = None,
) -> AppView | NotReady:
    return observe(seen, APP, placement=placement, draining=draining, liveness=liveness or Liveness(), needs=NEEDS)


def lack_of(found: AppView | NotReady | None) -> Lack:
    assert isinstance(found, NotReady), found
    return found.lack


def test_a_whole_snapshot_is_a_view() -> None:
    view = look(WHOLE, draining=frozenset({W1}))
    assert isinstance(view, AppView)
    assert view.owners == {kg(0): W0, kg(1): W0, kg(2): W1}
    assert [row.load for row in view.key_groups] == [10.0, 10.0, 10.0], "percent of one core"
    assert (view.draining, view.hosts, view.start_s) == ((W1,), {W0: "h0", W1: "h1"}, 1000.0)


@pytest.mark.parametrize(
    ("changes", "lack"),
    [
        ({"nodes": (node(W0), node(W1, state=WorkerState.RECOVERING))}, Lack.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.REBALANCING))}, Lack.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.AWAY))}, Lack.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0, steering=False), node(W1))}, Lack.WORKER_NOT_STEERING),
        ({"nodes": (node(W0, complete=False), node(W1))}, Lack.WORKER_INCOMPLETE),
        ({"nodes": (node(W0),)}, Lack.WORKER_MISSING),
        ({"key_groups": (owned(0, W0), owned(2, W1))}, Lack.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, W0))}, Lack.KEY_GROUPS_MISSING),
        ({"key_groups": ()}, Lack.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, WorkerId("w9")), owned(2, W1))}, Lack.OWNER_UNKNOWN),
        ({"key_groups": (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1))}, Lack.LOAD_UNKNOWN),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], lack: Lack) -> None:
    assert lack_of(look(replace(WHOLE, **changes))) is lack  # type: ignore[arg-type]


def test_a_load_that_is_unknown_names_its_worker_and_the_reason() -> None:
    nodes = (node(W0, unknown="its agents' steps take 0.3 s"), node(W1))
    key_groups = (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1, cpu=None))

    found = look(replace(WHOLE, nodes=nodes, key_groups=key_groups))

    assert isinstance(found, NotReady)
    assert found.detail == (
        "the loads at w0 (its agents' steps take 0.3 s), w1 (it does not say why) are unknown; "
        "key groups without a CPU measurement: app/sums/1, app/sums/2"
    )


@pytest.mark.parametrize(
    ("partitions", "operators", "fits"),
    [(20_500, 1, True), (20_600, 1, False), (1, 1000, True), (1, 1001, False)],
)
def test_an_app_whose_placement_nobody_could_read_is_too_large(partitions: int, operators: int, fits: bool) -> None:
    worker = WorkerId("w" * 200)
    names = [OperatorId(f"o{at:04}") for at in range(operators)]
    rows = [replace(owned(0, worker), key_group=KeyGroup(APP, each, at)) for each in names for at in range(partitions)]
    found = look(snapshot([node(worker, host=HostId("h0"))], rows), placement=None)
    if fits:
        assert isinstance(found, AppView)
        moved = {operator: (((worker, WorkerId("v" * 200)),) * partitions) for operator in names}
        placement = Placement(cluster="c" * 200, app=AppId("a" * 200), epoch=Epoch(2**53, 2**53), owners=moved)
        assert decode_placement(encode_placement(placement)) == placement
    else:
        assert lack_of(found) is Lack.APP_TOO_LARGE


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
    assert isinstance(look(WHOLE, placement=None), AppView)
    assert lack_of(look(replace(WHOLE, key_groups=(owned(0, W0), owned(2, W1))), None)) is Lack.KEY_GROUPS_MISSING
    assert lack_of(look(snapshot([], []), None)) is Lack.NO_WORKERS


def test_a_worker_that_left_long_ago_and_owns_nothing_does_not_block() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.AWAY)], [owned(0, W0), owned(1, W0), owned(2, W0)])
    liveness = Liveness()
    liveness.see(seen, [W0, W1])
    assert lack_of(look(seen, liveness=liveness)) is Lack.WORKER_MISSING, "it may come back any moment"
    later = replace(seen, start_ms=1_060_000, end_ms=1_070_000)
    liveness.see(later, [W0, W1])
    view = look(later, liveness=liveness)
    assert isinstance(view, AppView)
    assert [worker.id for worker in view.workers] == [W0]


def test_an_idle_worker_counts_and_a_stopped_one_does_not() -> None:
    idle = snapshot([node(W0), node(W1)], [owned(0, W0)])
    view = look(idle, placement=None)
    assert isinstance(view, AppView)
    assert evaluate(view).node_loads == {W0: 20.0, W1: 0.0}
    stopped = snapshot([node(W0), node(W1, state=WorkerState.AWAY, app=None)], [owned(0, W0)])
    view = look(stopped, placement=None)
    assert isinstance(view, AppView)
    assert [worker.id for worker in view.workers] == [W0]


@pytest.mark.parametrize(
    ("now", "changes", "lack"),
    [
        (END_S + 45.0, {}, None),
        (END_S + 45.1, {}, Lack.STALE_SNAPSHOT),
        (END_S, {"hosts_seen": 19}, None),
        (END_S, {"hosts_seen": 18}, Lack.LOW_COVERAGE),
        (END_S, {"hosts_seen": 0, "hosts_expected": 0}, Lack.LOW_COVERAGE),
    ],
)
def test_stale_and_incomplete_snapshots_are_refused(now: float, changes: dict[str, object], lack: Lack | None) -> None:
    found = check_cluster(replace(WHOLE, **changes), now, Liveness(), NEEDS)  # type: ignore[arg-type]
    assert (found and found.lack) == lack


def test_a_lack_of_coverage_names_the_hosts_that_no_longer_report() -> None:
    liveness = Liveness()
    liveness.see(snapshot([node(WorkerId(f"w{index}")) for index in range(5)], []), [])
    seen = snapshot([node(WorkerId(f"w{index}")) for index in range(4)], [], hosts_seen=4, hosts_expected=5)
    found = check_cluster(seen, END_S, liveness, NEEDS)
    assert found is not None
    assert found.detail == "4 of 5 hosts reported, 95% needed; no longer: h4"


def test_hold_when_forty_percent_of_the_hosts_are_lost_until_they_count_as_gone() -> None:
    workers = [WorkerId(f"w{index}") for index in range(5)]
    liveness = Liveness()
    liveness.see(snapshot([node(worker) for worker in workers], []), [])
    four = snapshot([node(worker) for worker in workers[:4]], [])
    assert check_cluster(four, END_S, liveness, NEEDS) is None
    three = snapshot([node(worker) for worker in workers[:3]], [])
    assert lack_of(check_cluster(three, END_S, liveness, NEEDS)) is Lack.HOSTS_LOST
    later = replace(three, start_ms=1_611_000, end_ms=1_621_000)
    liveness.see(later, [])
    assert check_cluster(later, 1621.0, liveness, NEEDS) is None


def test_a_successor_holds_too_when_no_host_has_reported_forty_percent_of_the_owners() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    successor = Liveness()
    successor.see(alone, [W0, W1])
    assert lack_of(check_cluster(alone, END_S, successor, NEEDS)) is Lack.HOSTS_LOST
    later = replace(alone, start_ms=1_611_000, end_ms=1_621_000)
    successor.see(later, [W0, W1])
    assert check_cluster(later, 1621.0, successor, NEEDS) is None  # it counts as gone


@pytest.mark.parametrize(("strangers", "lack"), [(1, None), (2, Lack.HOSTS_LOST)])
def test_two_of_five_owners_that_nobody_reports_are_forty_percent(strangers: int, lack: Lack | None) -> None:
    workers = [WorkerId(f"w{index}") for index in range(5)]
    seen = snapshot([node(worker) for worker in workers[strangers:]], [])
    successor = Liveness()
    successor.see(seen, workers)

    found = check_cluster(seen, END_S, successor, NEEDS)

    assert (found and found.lack) == lack


def test_an_owner_that_was_seen_before_is_a_worker_that_is_away_and_no_lost_host() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    liveness = Liveness()
    liveness.see(WHOLE, [W0, W1])
    liveness.see(alone, [W0, W1])
    assert check_cluster(alone, END_S, liveness, NEEDS) is None


def test_only_running_workers_say_what_they_own() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.REBALANCING)], [owned(0, W0), owned(2, W1)])
    assert ownership(seen) == {kg(0): W0}


def test_load_distance_is_relative_to_capacity_and_one_sided_for_a_drained_worker() -> None:
    seen = snapshot([node(W0, capacity=1.0), node(W1, capacity=0.5)], [owned(0, W0, 0.3), owned(1, W1, 0.3)])
    view = look(seen, placement=None)
    assert isinstance(view, AppView)
    found = evaluate(view)
    assert (found.node_loads, found.mean_load, found.load_distance) == (
        {W0: pytest.approx(30.0), W1: pytest.approx(60.0)},
        pytest.approx(40.0),
        pytest.approx(20.0),
    )
    drained = look(seen, placement=None, draining=frozenset({W1}))
    assert isinstance(drained, AppView)
    found = evaluate(drained)
    assert (found.mean_load, found.load_distance) == (pytest.approx(60.0), pytest.approx(30.0)), "w0 is 30 below"
    nobody = look(seen, placement=None, draining=frozenset({W0, W1}))
    assert isinstance(nobody, AppView)
    assert evaluate(nobody).load_distance is None


def test_loads_are_a_mean_at_first_then_smoothed_and_noise_is_what_was_not_foreseen() -> None:
    history, seen = History(), []
    for cpu in (0.1, 0.3, 0.5):
        view = look(snapshot([node(W0), node(W1)], [owned(0, W0, cpu), owned(1, W1)]), placement=None)
        assert isinstance(view, AppView)
        smoothed, history = follow(view, history, 0.5)
        [changing, steady] = smoothed.key_groups
        assert steady.load == pytest.approx(10.0)
        seen.append((changing.load, history.concentration, history.error))
    # Weights 1; 1/2, 1/2; 1/4, 1/4, 1/2.  w0 was 20 % of a core above what was foreseen, then 30: it has half a core,
    # the mean rises by half of what w0 does, so both workers are off by 20 pp, then by 30.
    assert seen == [
        (pytest.approx(10.0), 1.0, 0.0),
        (pytest.approx(20.0), 0.5, pytest.approx(400.0)),
        (pytest.approx(35.0), 0.375, pytest.approx(0.5 * 400.0 + 0.5 * 900.0)),
    ]
    assert evaluate(smoothed, history).noise == pytest.approx(NOISE_ERRORS * (650.0 * 0.375 / 1.375) ** 0.5)
    assert evaluate(smoothed).noise == 0.0


def test_a_view_is_an_instance_of_the_contract() -> None:
    pairs = (PairWindow(source=kg(0), target=kg(2), tuples_s=5.0, bytes_s=50.0),)
    seen = snapshot([node(W0), node(W1)], [owned(0, W0), owned(1, W0, state_bytes=None), owned(2, W1)], pairs=pairs)
    view = look(seen, draining=frozenset({W1}))
    assert isinstance(view, AppView)
    instance = instance_of(view, Settings(max_migrations=13))
    assert decode_snapshot(encode_snapshot(instance)) == instance
    assert [(each.id, each.removing) for each in instance.nodes] == [("w0", False), ("w1", True)]
    assert [each.state_bytes for each in instance.key_groups] == [1000, 1000, 1000], "unknown = the largest known"
    assert [(each.source, each.target, each.rate) for each in instance.flows] == [("app/sums/0", "app/sums/2", 5.0)]


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
    found = look(seen_with(declaring(renamed, renamed), *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1)))
    assert isinstance(found, AppView)
    assert found.owners == {KeyGroup(APP, TOTALS, 0): W0, KeyGroup(APP, TOTALS, 1): W1}, "of before the change: none"


def test_of_an_operator_with_fewer_key_groups_than_before_the_others_are_gone() -> None:
    found = look(seen_with(declaring({OPERATOR: 2}, {OPERATOR: 2}), *of(OPERATOR, W0, W1, W1)))
    assert isinstance(found, AppView)
    assert found.owners == {kg(0): W0, kg(1): W1}


def test_what_is_declared_and_not_reported_is_missing() -> None:
    more = {OPERATOR: 3, TOTALS: 2}
    found = look(seen_with(declaring(more, more), *WHOLE.key_groups, *of(TOTALS, W0)))
    assert isinstance(found, NotReady)
    assert (found.lack, found.detail) == (
        Lack.KEY_GROUPS_MISSING,
        "1 key groups were not reported: totals/1",
    )


def test_workers_that_declare_different_operators_are_named_with_what_they_declare() -> None:
    sides = declaring({OPERATOR: 3, TOTALS: 2}, {OPERATOR: 4, TOTALS: 2})
    found = look(seen_with(sides, *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1)))
    assert isinstance(found, NotReady)
    assert (found.lack, found.detail) == (
        Lack.OPERATORS_DIFFER,
        "its workers declare different operators; w0: sums with 3 key groups; w1: sums with 4 key groups",
    )
    found = look(seen_with(declaring({OPERATOR: 3}, {OPERATOR: 3, TOTALS: 2}), *WHOLE.key_groups))
    assert isinstance(found, NotReady)
    assert found.detail.endswith("w0: no more than the others; w1: totals with 2 key groups")


def test_that_workers_differ_is_said_rather_than_that_they_do_not_steer_meanwhile() -> None:
    """The plug-ins see it, too: none hands over while the versions of the app differ."""
    nodes = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {TOTALS: 3}))
    assert lack_of(look(seen_with(nodes, *WHOLE.key_groups))) is Lack.OPERATORS_DIFFER
    same = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {OPERATOR: 3}))
    assert lack_of(look(seen_with(same, *WHOLE.key_groups))) is Lack.WORKER_NOT_STEERING


def test_workers_that_only_report_are_named_with_their_reasons() -> None:
    reason, w2 = "workers differ in their topics: w0 against w1", WorkerId("w2")
    nodes = (node(w2, steering=False), *(node(name, steering=False, reason=reason) for name in (W0, W1)))
    found = look(replace(WHOLE, nodes=nodes))
    assert isinstance(found, NotReady)
    assert found.detail == f"workers that only report: w2 (no reason is given), w0, w1 ({reason})"
    waiting = replace(WHOLE, nodes=(node(W0, reason="the broker does not know these topics: a"), node(W1)))
    assert isinstance(look(waiting), AppView)


def test_while_an_agent_does_not_say_it_the_placement_tells_the_key_groups() -> None:
    assert isinstance(look(seen_with(declaring({OPERATOR: 3}, None), *WHOLE.key_groups)), AppView)
    renamed = seen_with(declaring({TOTALS: 3}, None), *of(TOTALS, W0, W0, W1))
    assert lack_of(look(renamed)) is Lack.KEY_GROUPS_MISSING


def test_pairs_of_key_groups_that_are_gone_are_left_out() -> None:
    pairs = tuple(
        PairWindow(source=kg(0), target=target, tuples_s=1.0, bytes_s=1.0)
        for target in (kg(1), kg(2), KeyGroup(APP, TOTALS, 0))
    )
    seen = seen_with(declaring({OPERATOR: 2}, {OPERATOR: 2}), *of(OPERATOR, W0, W1))
    found = look(replace(seen, pairs=pairs))
    assert isinstance(found, AppView)
    assert found.flows == {(kg(0), kg(1)): 1.0}


def test_two_workers_under_one_name_are_named_with_their_hosts() -> None:
    found = look(replace(WHOLE, nodes=(node(W0, also_on=(HostId("h7"),)), node(W1))))
    assert isinstance(found, NotReady)
    assert (found.lack, found.detail) == (
        Lack.WORKER_TWICE,
        "workers that run on several hosts under one name: w0 (h0, h7)",
    )


OTHER = AppId("other")


def test_a_worker_that_was_started_again_with_another_app_is_none_of_this_one() -> None:
    liveness = Liveness()
    seen = replace(WHOLE, nodes=(node(W0), node(W1, app=OTHER)), key_groups=tuple(owned(at, W0) for at in range(3)))
    for part in (WHOLE, seen):
        liveness.see(part, [W0, W1])
    found = look(seen, liveness=liveness)
    assert isinstance(found, AppView)
    assert [worker.id for worker in found.workers] == [W0], "nothing is planned for w1, and nobody waits for it"


def test_an_app_whose_workers_all_have_another_one_now_has_none() -> None:
    nodes = (node(W0, app=OTHER), node(W1, app=OTHER))
    liveness = Liveness()
    liveness.see(replace(WHOLE, nodes=nodes), [W0, W1])
    found = look(replace(WHOLE, nodes=nodes, key_groups=()), liveness=liveness)
    assert isinstance(found, NotReady)
    assert (found.lack, found.detail) == (Lack.NO_WORKERS, "no worker reports")


def test_with_a_forgotten_app_go_its_silent_hosts_but_none_on_which_another_one_ran() -> None:
    other, shared = AppId("other"), HostId("h0")
    before = snapshot(
        [node(W0), node(W1, app=other), node(WorkerId("w2"), app=other, host=shared), node(WorkerId("w3"), app=other)],
        [],
    )
    liveness = Liveness()
    liveness.see(before, [])
    liveness.forget_app(other, reporting=[HostId("h3")])
    assert sorted(liveness.hosts) == ["h0", "h3"], "not h1; h3 reports still"
    liveness.forget_worker(W0, reporting=[])
    assert sorted(liveness.hosts) == ["h3"], "nobody else is known to have run on h0"
