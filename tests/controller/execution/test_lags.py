"""How far a job is behind: in seconds of its rate, beside what the windows before its plan let expect."""

from tests.controller.execution.execution_transcripts import APP, T0, W0, W1, plan, started
from trimtab_controller.execution.lags import JobWindow, Lag, Lags, Waiting
from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.names import WorkerId


def in_flight() -> list[Round]:
    """A plan that began at T0."""
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    return [machine.state.rounds[APP]]


def look(lags: Lags, end_s: float, backlog: float | None, rate: float | None = 100.0, *, busy: bool = False) -> Lag:
    job = JobWindow(whole=Waiting(backlog=backlog, rate=rate), workers={})
    return lags.see(end_s, {APP: job}, in_flight() if busy else [])[APP]


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
        whole=Waiting(backlog=None, rate=30.0),
        workers={
            W0: Waiting(backlog=50.0, rate=10.0),
            W1: Waiting(backlog=None, rate=10.0),
            w2: Waiting(backlog=9.0, rate=0.0),
        },
    )
    assert lags.see(T0, {APP: job}, []) == {APP: Lag(lag_s=None, workers_s={W0: 5.0})}
    assert lags.see(T0 + 10, {}, []) == {}
    stopped = JobWindow(whole=job.whole, workers={W0: Waiting(backlog=50.0, rate=0.0)})
    assert lags.see(T0 + 20, {APP: stopped}, [])[APP].workers_s == {}
