"""What the size of an app is judged by: demand, also where it is unknown, capacity, fixed use, and who can leave."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_scaling, a_worker, kg, owned, plannable
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.deciders import BALANCED, decider, execution, window
from tests.controller.decider.hosted_job import Machine
from tests.controller.decider.observed_snapshots import owned as pool_owned
from tests.controller.decider.observed_snapshots import owned as starts_owned
from tests.controller.decider.observed_snapshots import snapshot
from tests.controller.decider.test_hosts import H0, H1, job, view_of
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.memory.unknown_load import Gaps
from trimtab_controller.decider.policies.size_facts import (
    SizeFacts,
    facts_of,
    helps,
    startable,
    with_gains,
)
from trimtab_controller.decider.policies.sizes import KEPT, LONGEST_S, Starts
from trimtab_controller.decider.values.decision import PoolWorker
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.concerns import ClusterUse, WorkerUse, crash_concerns
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import FixedWorker, PlannableView
from trimtab_controller.execution.state import ScalingPhase
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


def view(*fixed: FixedWorker, kept: tuple[Owned, ...] = (), draining: bool = False) -> PlannableView:
    workers = [a_worker(W0), a_worker(W1, capacity=2.0, draining=draining)]
    rows = [owned(kg(0), W0, 60.0, 1000), owned(kg(1), W1, 80.0, 1000), owned(kg(2), W1, 40.0, 1000)]
    return plannable(workers, rows, start_s=1000.0, end_s=1010.0, standbys=1, fixed=fixed, kept=kept, fixed_use=15.0)


def use(used_pct: float | None = 70.0, **changes: object) -> ClusterUse:
    rows = {
        name: WorkerUse(app=APP, used_pct=used_pct, load_pct=60.0, demand_pct=80.0, inputs_s=5.0) for name in (W0, W1)
    }
    rows |= changes  # type: ignore[arg-type]
    return ClusterUse(workers=rows)


def facts(seen: PlannableView, gaps: Gaps = Gaps(), used: ClusterUse = use(), **changes: object) -> SizeFacts:  # noqa: B008
    default = {"pool": (), "leaving": (), "starting": (), "returnable": None, "restart_s": 30.0, "catch_up_s": 300.0}
    return facts_of(seen, gaps, used, **(default | changes))  # type: ignore[arg-type]


def test_demand_fixed_use_and_capacity_are_in_cores() -> None:
    found = facts(view())
    assert (found.demand, found.capacity, found.rate) == (pytest.approx(1.8), 3.0, 10.0)
    assert found.fixed == 0.15
    assert found.asked == pytest.approx(2.1)
    assert found.utilisation == pytest.approx(0.7)
    assert found.behind == pytest.approx(0.3)


def test_what_workers_use_and_lack_is_no_less_where_they_share_a_host_that_is_too_small() -> None:
    """Their percentages are of their own capacity, of which they count with half."""
    seen = view()
    shared = tuple(replace(each, capacity=0.5 * each.capacity, share=0.5) for each in seen.workers)
    found = facts(replace(seen, workers=shared))
    assert found.capacity == 1.5
    assert found.behind == pytest.approx(0.3), "as with whole hosts"


@pytest.mark.parametrize("missing", ["its inputs", "all of it"])
def test_the_rate_of_a_worker_that_does_not_say_it_counts_like_that_of_the_others(missing: str) -> None:
    known = WorkerUse(app=APP, used_pct=70.0, load_pct=60.0, demand_pct=80.0, inputs_s=5.0)
    rows = {W0: known} if missing == "all of it" else {W0: known, W1: replace(known, inputs_s=None)}
    assert facts(view(), used=ClusterUse(workers=rows)).rate == 15.0, "5 with one core, 3 cores"
    assert facts(view(), used=ClusterUse()).rate is None


def test_workers_on_which_rules_keep_key_groups_are_tied() -> None:
    frozen = Rule(name="a", kind=RuleKind.FREEZE, reason="r", key_groups=((2, 2),))
    pool = Rule(name="b", kind=RuleKind.POOL, reason="r", key_groups=((0, 0),), workers=(W0,))
    both = Rule(name="c", kind=RuleKind.POOL, reason="r", workers=(W0, W1))
    for rules, tied in (((), []), ((both,), []), ((frozen,), [W1]), ((pool,), [W0]), ((pool, frozen), [W0, W1])):
        found = facts(replace(view(), rules=rules))
        assert [each.id for each in found.workers if each.tied] == tied, rules
    elsewhere = replace(pool, key_groups=((1, 1),))
    assert not any(each.tied for each in facts(replace(view(), rules=(elsewhere,))).workers), "it is to move to w0"


# ---- the pool: which workers can be started for an app, and which of them crash


OTHER = AppId("other")


def pool_away(name: str, absence: Absence | None, declared: AppId | None = APP, **more: object) -> NodeWindow:
    row = node(WorkerId(name), app=None, state=WorkerState.AWAY, cpu=None, steering=False, **more)
    return replace(row, absence=absence, declared=declared)


def pooled(name: str) -> PoolWorker:
    return PoolWorker(worker=WorkerId(name), host=HostId(f"h{name[1:]}"), capacity=0.5)


def test_the_pool_has_the_declared_workers_that_were_not_started_or_were_stopped() -> None:
    rows = [
        node(W0),
        pool_away("w6", Absence.STOPPED),
        pool_away("w5", Absence.STOPPED),
        pool_away("w4", Absence.STOPPED, OTHER),
        pool_away("w3", Absence.STOPPED, None),
        pool_away("w2", Absence.STARTING),
        pool_away("w7", Absence.CRASHED),
        pool_away("w8", None, None),
    ]
    seen = snapshot(rows, [pool_owned(0, W0)])

    assert startable(seen, frozenset()) == {APP: (pooled("w5"), pooled("w6")), OTHER: (pooled("w4"),)}
    assert startable(seen, frozenset({WorkerId("w5"), WorkerId("w4")})) == {APP: (pooled("w6"),)}


def test_a_worker_adds_what_its_host_has_left_for_it() -> None:
    made = job({H0: Machine(1.5), H1: Machine(4.0, others=1.0)}, {W0: H0, W1: H1})
    decider = made.decider()
    window = made.window()
    decider.record(window.end_ms / 1000.0, window)
    elsewhere = HostId("h9")
    pool = [
        PoolWorker(worker=WorkerId(f"w{number}"), host=host, capacity=1.0)
        for number, host in ((5, H0), (6, H0), (7, H1), (8, elsewhere))
    ]
    found = with_gains(pool, view_of(decider), decider._situation.memory.hosts)
    assert [(each.worker, each.gain, helps(each)) for each in found] == [
        ("w7", 1.0, True),
        ("w8", 1.0, True),
        ("w5", pytest.approx(0.5), True),
        ("w6", pytest.approx(0.0), False),
    ]
    assert [each.adds is None for each in found] == [False, True, False, False], "nothing is known of h9"


def test_crashed_workers_are_a_concern_of_the_app_that_they_are_declared_for_or_ran() -> None:
    said = "crashed 10 times in a row"
    rows = [
        pool_away("w5", Absence.CRASHED, reason=said),
        pool_away("w2", Absence.CRASHED, None),
        pool_away("w3", Absence.CRASHED, None),
        pool_away("w4", Absence.STARTING, reason="crashed once"),
    ]
    ran = {WorkerId("w2"): APP, WorkerId("w4"): APP}

    assert crash_concerns(snapshot(rows, []), ran) == (
        Concern(
            kind=ConcernKind.WORKER_CRASHES,
            app=APP,
            workers=(WorkerId("w2"), WorkerId("w5")),
            detail=f"w2 on h2 crashed, w5 on h5 {said}",
        ),
    )


def test_the_decider_knows_the_pool_and_the_crashes_of_the_last_window() -> None:
    drain = Drain(worker=WorkerId("w6"), by="ann", at=0.0, reason="off")
    made = decider(execution(None), drain)
    shown = window(BALANCED).snapshot
    rows = (
        pool_away("w5", Absence.STOPPED),
        pool_away("w6", Absence.STOPPED),
        pool_away("w7", Absence.CRASHED, reason="crashed"),
    )
    shown = replace(shown, nodes=(*shown.nodes, *rows))
    made.on_event(shown.end_ms / 1000.0, SnapshotArrived(snapshot=shown))

    assert made.known.pool == {APP: (pooled("w5"),)}
    assert [(concern.kind, concern.workers) for concern in made.known.concerns] == [
        (ConcernKind.WORKER_CRASHES, (WorkerId("w7"),))
    ]


# ---- how long started workers took until they ran


def seen(end_s: float, *, runs: bool = True) -> Snapshot:
    """A window in which w1 runs or recovers."""
    state = WorkerState.RUNNING if runs else WorkerState.RECOVERING
    made = snapshot([node(W0), node(W1, state=state)], [starts_owned(0, W0)])
    return replace(made, start_ms=round(1000 * (end_s - 10.0)), end_ms=round(1000 * end_s))


def started(at: float, phase: ScalingPhase = ScalingPhase.DONE, kind: CommandKind = CommandKind.START) -> dict:
    return {W1: a_scaling(kind, W1, at, phase, app=APP, epoch=Epoch(1, round(at)))}


def test_a_start_counts_from_the_command_until_the_window_in_which_the_worker_runs() -> None:
    made = Starts().after(seen(1000.0), {})
    made = made.after(seen(1010.0, runs=False), started(1003.0))
    assert made.measured_s(APP) is None
    made = made.after(seen(1020.0), started(1003.0))
    assert made.measured_s(APP) == 17.0
    assert made.after(seen(1030.0), started(1003.0)) == made, "it counts once"


def test_the_longest_of_the_last_starts_counts_and_none_beyond_the_limit() -> None:
    made, end_s = Starts().after(seen(1000.0), {}), 1000.0
    for took_s in (5_000.0, 30.0, 20.0):
        end_s += 10_000.0
        made = made.after(seen(end_s), started(end_s - took_s))
    assert made.took == {APP: (LONGEST_S, 30.0, 20.0)}
    for _ in range(KEPT - 2):
        end_s += 10_000.0
        made = made.after(seen(end_s), started(end_s - 10.0))
    assert made.measured_s(APP) == 30.0
    assert len(made.counted) == 1, "it does not grow"


def test_what_was_started_before_the_first_window_or_is_no_start_does_not_count() -> None:
    first = Starts().after(seen(1000.0), started(960.0))
    assert first.after(seen(1010.0), started(960.0)).took == {}
    assert first.after(seen(1010.0), started(1003.0, ScalingPhase.SENT)).took == {}
    assert first.after(seen(1010.0), started(1003.0, kind=CommandKind.STOP)).took == {}
    assert first.after(seen(1010.0), started(1012.0)).took == {}, "the window ended before the command"
