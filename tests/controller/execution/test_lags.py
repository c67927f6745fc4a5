"""How far a job is behind: in seconds of its rate, beside what the windows before its plan let expect."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import APP, T0, W0, W1, plan, started
from trimtab_controller.execution.lags import JobWindow, Lag, Lags, WaitingInputs
from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.names import WorkerId


def in_flight() -> list[Round]:
    """A plan that began at T0."""
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    return [machine.state.rounds[APP]]


def look(lags: Lags, end_s: float, backlog: float | None, rate: float | None = 100.0, *, busy: bool = False) -> Lag:
    job = JobWindow(whole=WaitingInputs(backlog=backlog, rate=rate), workers={})
    return lags.observe(end_s, {APP: job}, in_flight() if busy else [])[APP]


def test_the_lag_is_the_backlog_in_seconds_of_the_rate_and_grows_from_what_the_plan_found() -> None:
    lags = Lags()
    assert look(lags, T0 - 10, 200.0) == Lag(lag_s=2.0)
    assert look(lags, T0 + 10, 1500.0, busy=True) == Lag(lag_s=15.0, grown_s=13.0)
    assert look(lags, T0 + 20, 700.0, busy=True) == Lag(lag_s=7.0, grown_s=5.0, falling=True)
    assert look(lags, T0 + 30, 700.0) == Lag(lag_s=7.0), "without a plan nothing has grown because of one"


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


def test_an_old_window_says_nothing_of_the_time_before_a_plan() -> None:
    lags = Lags()
    look(lags, T0 - 1000, 0.0)
    assert look(lags, T0 + 10, 5000.0, busy=True).grown_s == 0.0


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


def test_what_is_unknown_of_a_worker_is_no_growth() -> None:
    lags = Lags()
    see(lags, T0 - 10, job(w0_s=None, w1_s=None), busy=False)
    assert see(lags, T0 + 10, job(w0_s=0.0, w1_s=9.0)).targets_s == {}, "nobody knows how it was before"
    lags = Lags()
    see(lags, T0 - 10, job(w0_s=0.0, w1_s=0.0), busy=False)
    assert see(lags, T0 + 10, job(w0_s=0.0, w1_s=None)).targets_s == {}


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
