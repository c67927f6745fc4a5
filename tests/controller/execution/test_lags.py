"""How far a job is behind: in seconds of its rate, beside what the windows before its plan let expect."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import kg
from tests.controller.decider.deciders import window
from tests.controller.execution.execution_transcripts import APP, T0, W0, W1, plan, started
from trimtab_controller.execution.disruption import AppPauses, Unowned
from trimtab_controller.execution.lags import JobWindow, JobWindows, Lag, Lags, WaitingInputs
from trimtab_controller.execution.state import Round
from trimtab_controller.execution.windows import PauseTracker, unmeasured
from trimtab_protocol.messages.names import KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


def in_flight() -> list[Round]:
    """A plan that began at T0."""
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    return [machine.state.rounds[APP]]


def look(lags: Lags, end_s: float, backlog: float | None, rate: float | None = 100.0, *, busy: bool = False) -> Lag:
    job = JobWindow(whole=WaitingInputs(backlog=backlog, rate=rate), workers={})
    return lags.observe(end_s, {APP: job}, in_flight() if busy else [])[APP]


def test_a_job_that_fell_behind_before_its_plan_is_expected_to_go_on_falling_behind() -> None:
    lags = Lags()
    for at, backlog in ((T0 - 30, 0.0), (T0 - 20, 500.0), (T0 - 10, 1000.0)):
        look(lags, at, backlog)
    found = look(lags, T0 + 10, 2000.0, busy=True)
    assert found == Lag(lag_s=20.0, grown_s=0.0), "10 s at first, and half a second more per second"
    assert look(lags, T0 + 20, 4000.0, busy=True).grown_s == 15.0


def test_a_job_that_stops_has_the_rate_from_before() -> None:
    lags = Lags()
    look(lags, T0 - 10, 0.0)
    assert look(lags, T0 + 10, 1200.0, 0.0, busy=True).grown_s == 12.0
    assert look(lags, T0 + 20, 1200.0, 10.0, busy=True).lag_s == 12.0, "a slow job does not seem further behind"


def test_what_is_unknown_stays_unknown() -> None:
    lags = Lags()
    assert look(lags, T0 - 20, 100.0, None) == Lag(lag_s=None)
    assert look(lags, T0 - 10, None) == Lag(lag_s=None)
    assert look(lags, T0 + 10, None, busy=True) == Lag(lag_s=None)
    assert look(lags, T0 + 20, 3000.0, busy=True) == Lag(lag_s=30.0, grown_s=0.0), "nobody knows how it was before"
    assert look(lags, T0 + 30, 4000.0, busy=True).grown_s == 10.0


def test_each_worker_has_its_lag_and_an_app_that_is_gone_is_forgotten() -> None:
    lags, w2 = Lags(), WorkerId("w2")
    job = JobWindow(
        whole=WaitingInputs(backlog=None, rate=30.0),
        workers={
            W0: WaitingInputs(backlog=50.0, rate=10.0),
            W1: WaitingInputs(backlog=None, rate=10.0),
            w2: WaitingInputs(backlog=9.0, rate=0.0),
        },
    )
    assert lags.observe(T0, {APP: job}, []) == {APP: Lag(lag_s=None, workers_s={W0: 5.0})}
    assert lags.observe(T0 + 10, {}, []) == {}
    stopped = JobWindow(whole=job.whole, workers={W0: WaitingInputs(backlog=50.0, rate=0.0)})
    assert lags.observe(T0 + 20, {APP: stopped}, [])[APP].workers_s == {}


def job(*, w0_s: float | None, w1_s: float | None, measured: tuple[WorkerId, ...] = (W0, W1)) -> JobWindow:
    """An app that is not behind as a whole, and how far its workers are, in seconds."""
    workers = {W0: w0_s, W1: w1_s}
    return JobWindow(
        whole=WaitingInputs(backlog=0.0, rate=100.0),
        workers={
            name: WaitingInputs(backlog=None if lag_s is None else 10.0 * lag_s, rate=10.0)
            for name, lag_s in workers.items()
        },
        measured=frozenset(measured),
    )


def see(lags: Lags, end_s: float, seen: JobWindow, *, busy: bool = True) -> Lag:
    return lags.observe(end_s, {APP: seen}, in_flight() if busy else [])[APP]


def test_a_worker_that_receives_key_groups_counts_by_itself() -> None:
    lags = Lags()
    see(lags, T0 - 10, job(w0_s=1.0, w1_s=0.0), busy=False)
    found = see(lags, T0 + 10, job(w0_s=30.0, w1_s=5.0))
    assert (found.grown_s, found.worst, found.targets_s) == (4.0, W1, {W1: 4.0}), "w0 gives: it was behind by 1 s"
    assert see(lags, T0 + 20, job(w0_s=30.0, w1_s=4.0)).falling
    assert not see(lags, T0 + 30, job(w0_s=0.0, w1_s=4.5)).falling


def test_a_worker_inherits_what_waits_for_the_key_groups_that_it_receives() -> None:
    lags = Lags()
    for at, lag_s in ((-20, 10.0), (-10, 15.0)):
        see(lags, T0 + at, job(w0_s=lag_s, w1_s=0.0), busy=False)
    found = see(lags, T0 + 10, job(w0_s=25.0, w1_s=25.0))
    assert (found.grown_s, found.worst, found.targets_s) == (0.0, None, {W1: 0.0}), "w0 would be as far behind"


def test_nothing_waited_where_nothing_was_owned_and_that_is_no_lag_to_compare_with() -> None:
    lags, before = Lags(), replace(job(w0_s=None, w1_s=None), workers={}, idle=frozenset({W1}))
    see(lags, T0 - 10, before, busy=False)
    found = see(lags, T0 + 10, job(w0_s=30.0, w1_s=30.0))
    assert found.targets_s == {}, "how far its old owner was behind is not known"
    assert (lags.bases[APP].workers_s, lags.bases[APP].found_s) == ({}, {W1: 0.0})


def test_workers_of_the_plan_that_do_not_report_whole_windows_any_more_are_silent() -> None:
    lags = Lags()
    see(lags, T0 - 10, job(w0_s=0.0, w1_s=0.0), busy=False)
    found = see(lags, T0 + 10, job(w0_s=0.0, w1_s=0.0))
    assert (found.silent, found.whole) == ((), True)
    found = see(lags, T0 + 20, job(w0_s=0.0, w1_s=0.0, measured=(W0,)))
    assert (found.silent, found.whole) == ((W1,), False)
    lags = Lags()
    see(lags, T0 - 10, job(w0_s=0.0, w1_s=0.0, measured=(W0,)), busy=False)
    found = see(lags, T0 + 10, job(w0_s=0.0, w1_s=0.0, measured=(W0,)))
    assert (found.silent, found.whole) == ((), False), "w1 did not do so before the plan either"


# ---- what windows show the execution: for how long key groups paused, and how far jobs are behind


OWNERS = {kg(0): W0, kg(1): W0, kg(2): W1}
ALL_ON_W1 = dict.fromkeys(OWNERS, W1)
HOSTS = {row.worker: row.host for row in window(dict(OWNERS)).snapshot.nodes}
OPERATORS = {OperatorId("sums"): 3}


def made(end_s: float, owners: Mapping[KeyGroup, WorkerId] = OWNERS, **changes: dict[str, object]) -> Snapshot:
    """A window of 10 s, with changes to the rows of workers; `{}` as in the last report, None: no report of it."""
    snapshot = window(dict(OWNERS), end_s).snapshot
    owned = window(dict(owners), end_s).snapshot.key_groups if owners else ()
    nodes = [replace(row, operators=OPERATORS, paused_s=0.0, paused=0) for row in snapshot.nodes]
    nodes = [replace(row, **changes.get(row.worker, {})) for row in nodes]  # type: ignore[arg-type]
    return replace(snapshot, nodes=tuple(nodes), key_groups=owned)


def without(snapshot: Snapshot, worker: WorkerId) -> Snapshot:
    """The same without a report of this worker."""
    nodes: tuple[NodeWindow, ...] = tuple(row for row in snapshot.nodes if row.worker != worker)
    return replace(snapshot, nodes=nodes, key_groups=[row for row in snapshot.key_groups if row.worker != worker])


AWAY = {"state": WorkerState.AWAY, "app": None, "operators": None, "paused_s": None, "paused": None}


def test_what_plug_ins_measured_at_rebalances_is_summed_by_app() -> None:
    told = {"w0": {"paused_s": 3.0, "paused": 2}, "w1": {"paused_s": 1.4, "paused": 1}}
    assert PauseTracker().observe(made(1010.0, **told)) == {APP: AppPauses(measured_s=4.4, key_groups=3)}
    quiet = PauseTracker().observe(made(1010.0, w0={"paused_s": None, "paused": None}))
    assert quiet == {}


def test_running_workers_that_do_not_measure_are_counted() -> None:
    assert unmeasured(made(1010.0, w0={"paused_s": None, "paused": None})) == {APP: 1}
    assert unmeasured(made(1010.0, w0=AWAY)) == {}


def test_key_groups_of_a_worker_that_is_gone_count_until_others_report_them() -> None:
    found = PauseTracker()
    found.observe(made(1010.0))
    assert found.observe(without(made(1020.0), W0)) == {}, "nobody knows yet whether they pause"
    assert found.observe(without(made(1030.0), W0)) == {}
    taken = found.observe(without(made(1040.0, {**OWNERS, kg(0): W1}), W0))
    assert taken == {APP: AppPauses(unowned=(Unowned(since=1010.0, until=1030.0, key_groups=1),))}
    rest = found.observe(without(made(1050.0, ALL_ON_W1), W0))
    assert rest == {APP: AppPauses(unowned=(Unowned(since=1010.0, until=1040.0, key_groups=1),))}
    assert found.observe(without(made(1060.0, ALL_ON_W1), W0)) == {}


@pytest.mark.parametrize(
    ("host_reports", "before", "after", "paused"),
    [
        (False, 4, 4, False),  # its agent was silent
        (False, 4, 5, False),  # its agent was silent, and others have joined meanwhile
        (True, 4, 4, False),  # its agent was restarted, and waited for the plug-in
        (True, 4, 5, True),
        (True, None, 5, False),  # not known
    ],
)
def test_a_worker_that_is_back_has_paused_only_if_it_had_to_join_the_group_again(
    host_reports: bool, before: int | None, after: int, paused: bool
) -> None:
    found = PauseTracker()
    found.observe(made(1010.0, w0={"generation": before}))
    gone = made(1020.0, {kg(2): W1}, w0=AWAY)
    hosts = tuple(row for row in gone.hosts if host_reports or row.host != HOSTS[W0])
    found.observe(replace(gone if host_reports else without(gone, W0), hosts=hosts))
    expected = {APP: AppPauses(unowned=(Unowned(since=1010.0, until=1020.0, key_groups=2),))}
    assert found.observe(made(1030.0, w0={"generation": after})) == (expected if paused else {})


def test_a_worker_that_vanishes_within_a_window_counts_from_its_last_report_in_it() -> None:
    found = PauseTracker()
    found.observe(made(1010.0))
    snapshot = made(1020.0, w0=AWAY)
    rows = [replace(row, covered_s=4.0) if row.worker == W0 else row for row in snapshot.key_groups]
    found.observe(replace(snapshot, key_groups=rows))
    taken = found.observe(without(made(1030.0, ALL_ON_W1), W0))
    assert taken == {APP: AppPauses(unowned=(Unowned(since=1014.0, until=1020.0, key_groups=2),))}


def test_a_worker_whose_agent_was_told_to_end_goes_on_without_it() -> None:
    """Both are told to end, and the agent is faster: the worker gives its key groups away in order half a minute on."""
    found = PauseTracker()
    found.observe(made(1010.0))
    last = made(1020.0)
    found.observe(replace(last, ended=(HOSTS[W0],)))
    unseen = without(made(1030.0), W0)
    unseen = replace(unseen, hosts=tuple(row for row in unseen.hosts if row.host != HOSTS[W0]))
    assert found.observe(unseen) == {}
    taken = without(made(1060.0, ALL_ON_W1), W0)
    assert found.observe(replace(taken, hosts=unseen.hosts)) == {}


def test_a_worker_whose_agent_is_back_counts_from_when_that_misses_it() -> None:
    found = PauseTracker()
    found.observe(replace(made(1020.0), ended=(HOSTS[W0],)))
    unseen = without(made(1030.0), W0)
    found.observe(replace(unseen, hosts=tuple(row for row in unseen.hosts if row.host != HOSTS[W0])))
    found.observe(made(1050.0, {kg(2): W1}, w0=AWAY))
    taken = found.observe(without(made(1070.0, ALL_ON_W1), W0))
    assert taken == {APP: AppPauses(unowned=(Unowned(since=1040.0, until=1060.0, key_groups=2),))}


# --- job windows ------------------------------------------------------------------------------------------------------


def waiting(*backlogs: int | None, rate: float | None = 1.0) -> Snapshot:
    """A window in which each key group has this backlog and processes `rate` inputs per second."""
    snapshot = window(OWNERS).snapshot
    rows = zip(snapshot.key_groups, backlogs, strict=True)
    found = tuple(replace(row, backlog=each, tuples_in_s=rate) for row, each in rows)
    return replace(snapshot, key_groups=found)


def seen(*backlogs: int | None) -> JobWindow:
    return JobWindows().observe(waiting(*backlogs))[APP]


def test_backlogs_and_rates_are_summed_by_app_and_worker() -> None:
    assert seen(5, 7, 0) == JobWindow(
        whole=WaitingInputs(backlog=12.0, rate=3.0),
        workers={W0: WaitingInputs(backlog=10.0, rate=2.0), W1: WaitingInputs(backlog=0.0, rate=1.0)},
        measured=frozenset({W0, W1}),
    ), "each key group of a worker may be processing one input"


def test_a_worker_has_the_rate_that_its_key_groups_usually_have() -> None:
    windows = JobWindows()
    windows.observe(waiting(0, 0, 0, rate=None))
    assert windows.observe(waiting(0, 0, 0, rate=10.0))[APP].workers[W0].rate == 20.0
    job = windows.observe(waiting(50, 50, 50, rate=0.0))[APP]
    assert (job.whole.rate, job.workers[W0].rate) == (0.0, 16.0), "it stops, and what comes has not become less"
    assert windows.observe(waiting(0, 0, 0, rate=None))[APP].workers[W1].rate == 8.0
    moved = replace(
        waiting(0, 0, 9, rate=0.0),
        key_groups=[replace(each, worker=W1) for each in waiting(0, 0, 9).key_groups],
    )
    assert windows.observe(moved)[APP].workers == {W1: WaitingInputs(backlog=8.0, rate=pytest.approx(3 * 6.6))}


def test_a_worker_that_reports_only_some_of_the_window_is_not_measured() -> None:
    snapshot = waiting(0, 0, 0)

    def measured(**changes: object) -> frozenset[str]:
        nodes = [replace(each, **changes) if each.worker == W0 else each for each in snapshot.nodes]
        return JobWindows().observe(replace(snapshot, nodes=tuple(nodes)))[APP].measured

    assert measured() == {W0, W1}
    assert measured(covered_s=5.0) == {W1}
    assert measured(state=WorkerState.REBALANCING) == {W1}
    assert measured(complete=False) == {W0, W1}, "its key groups cover the window"
    rows = [replace(each, covered_s=5.0) for each in snapshot.key_groups]
    snapshot = replace(snapshot, key_groups=rows)
    assert measured(complete=False) == {W1}
