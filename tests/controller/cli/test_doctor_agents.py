"""What the doctor says of agents, workers and the leader: each fault by itself, and `ok` where all is well."""

from dataclasses import replace

from tests.controller.cli.findings import levels
from trimtab_controller.cli.doctor.agent_checks import (
    LeaderSeen,
    ReportSeen,
    ReportsSeen,
    judge_agents,
    judge_clocks,
    judge_leader,
    judge_refusals,
    judge_signatures,
    judge_windows,
)
from trimtab_controller.cli.doctor.findings import Check, Level
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import Absence, Basis, HostSample, Report, WorkerSample, WorkerState
from trimtab_protocol.signing.hosts import HostChecking

NOW = 1_000_000.0


def worker(name: str = "w0", **told: object) -> WorkerSample:
    whole = WorkerSample(
        worker=WorkerId(name),
        app=AppId("a"),
        state=WorkerState.RUNNING,
        capacity=1.0,
        cpu_s=0.1,
        steering=True,
        marks=(),
    )
    return replace(whole, **told)  # type: ignore[arg-type]


def seen(*workers: WorkerSample, at: float = NOW - 1, stamped_at: float | None = NOW - 1) -> ReportsSeen:
    report = Report(
        cluster="c",
        host=HostId("h0"),
        at_ms=round(at * 1000),
        interval_s=10.0,
        sequence=1,
        sample=HostSample(cpu_s=1.0, cores=4.0, basis=Basis.HOST),
        workers=workers or (worker(),),
        key_groups=(),
        pairs=(),
    )
    return ReportsSeen(
        now=NOW, looked_back_s=120, hosts={report.host: ReportSeen(report=report, stamped_at=stamped_at)}
    )


def test_signatures_of_hosts() -> None:
    signed = replace(seen(), unsigned={})
    without = replace(signed, unsigned={HostId("h0"): "unsigned"})

    assert levels(list(judge_signatures(signed, HostChecking.ENFORCE))) == [Level.OK]
    assert levels(list(judge_signatures(without, HostChecking.WARN))) == [Level.WARNING]
    assert levels(list(judge_signatures(without, HostChecking.ENFORCE))) == [Level.FAULT]
    assert list(judge_signatures(without, HostChecking.OFF)) == []
    assert list(judge_signatures(seen(), HostChecking.WARN)) == []


def test_clocks() -> None:
    assert levels(list(judge_clocks(seen()))) == [Level.OK]
    assert levels(list(judge_clocks(seen(at=NOW + 9, stamped_at=NOW + 9)))) == [Level.FAULT]
    assert levels(list(judge_clocks(seen(at=NOW - 60, stamped_at=NOW - 60)))) == [Level.WARNING]
    [skewed] = judge_clocks(seen(at=NOW + 4, stamped_at=NOW - 1))
    assert (skewed.level, "h0 (+5.0 s)" in skewed.text) == (Level.WARNING, True)
    assert levels(list(judge_clocks(seen(at=NOW - 31, stamped_at=NOW - 1)))) == [Level.WARNING]
    assert levels(list(judge_clocks(seen(stamped_at=None)))) == [Level.NOT_CHECKED]
    assert levels(list(judge_clocks(ReportsSeen(now=NOW, looked_back_s=120)))) == [Level.NOT_CHECKED]


def test_agents() -> None:
    hosts = frozenset({HostId("h0")})
    [good] = judge_agents(seen(), hosts)
    assert (good.level, "1 of 1 workers steered" in good.text) == (Level.OK, True)
    assert levels(list(judge_agents(seen(), None))) == [Level.OK]
    assert levels(list(judge_agents(ReportsSeen(now=NOW, looked_back_s=120), hosts))) == [Level.FAULT]
    missing = list(judge_agents(seen(), hosts | {HostId("h1")}))
    assert (levels(missing), missing[1].text) == ([Level.OK, Level.FAULT], "expected, but silent: h1")
    assert levels(list(judge_agents(seen(), frozenset({HostId("h1")})))) == [Level.OK, Level.FAULT, Level.WARNING]
    late = list(judge_agents(seen(stamped_at=NOW - 50), hosts))
    assert (levels(late), late[1].text) == ([Level.OK, Level.WARNING], "no report for a while: h0 (50 s)")
    partly = replace(seen(), complete=False)
    assert levels(list(judge_agents(partly, hosts | {HostId("h1")}))) == [Level.OK, Level.NOT_CHECKED]
    assert levels(list(judge_agents(replace(seen(), unreadable=("h2",)), hosts))) == [Level.OK, Level.FAULT]


def test_windows_that_the_reports_do_not_fill() -> None:
    [host] = seen().hosts.values()
    ten = replace(seen(), hosts={HostId("h0"): replace(host, report=replace(host.report, interval_s=10.0))})

    assert [list(judge_windows(ten, window_s)) for window_s in (10.0, 60.0)] == [[], []]
    for window_s in (5.0, 15.0):
        [told] = judge_windows(ten, window_s)
        assert (told.level, "h0 (10 s)" in told.text) == (Level.WARNING, True)
    tenth = replace(seen(), hosts={HostId("h0"): replace(host, report=replace(host.report, interval_s=0.1))})
    assert list(judge_windows(tenth, 0.3)) == []


def test_workers_that_are_not_steered_say_why() -> None:
    told = list(judge_agents(seen(worker(steering=False, unknown="aiokafka 0.13"), worker("w1")), None))
    assert levels(told) == [Level.OK, Level.WARNING]
    assert told[1].text.endswith("w0 on h0: aiokafka 0.13")
    reset = list(judge_agents(seen(worker(reason="offsets were reset"), worker("w1")), None))
    assert levels(reset) == [Level.OK, Level.WARNING]
    assert reset[1].text == "these workers run, but: w0 on h0: offsets were reset"
    away = list(judge_agents(seen(worker(state=WorkerState.AWAY, steering=False)), None))
    assert (levels(away), away[1].text) == ([Level.OK, Level.WARNING], "not connected to their agents: w0 on h0")
    stopped = worker(state=WorkerState.AWAY, steering=False, absence=Absence.STOPPED, declared=AppId("shop"))
    assert levels(list(judge_agents(seen(stopped), None))) == [Level.OK], "it is in the pool"


def test_agents_that_refuse_signatures() -> None:
    assert list(judge_refusals(seen())) == []
    [finding] = judge_refusals(replace(seen(), refusing={HostId("h0"): "unknown_key"}))
    assert (finding.check, finding.level) == (Check.SIGNING, Level.WARNING)
    assert "h0 (unknown_key)" in finding.text


def test_the_leader() -> None:
    good = LeaderSeen(leader="c1:7", standbys=("c2:8",), heard_s=3.0)
    assert levels(list(judge_leader(good))) == [Level.OK]
    assert levels(list(judge_leader(replace(good, heard_s=60.0)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, heard_s=None)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, leader=None)))) == [Level.FAULT]
    assert levels(list(judge_leader(LeaderSeen(leader=None, dry_run_heard_s=2.0)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, hold="the journal is gone")))) == [Level.OK, Level.FAULT]
    assert levels(list(judge_leader(replace(good, paused="paused by ann")))) == [Level.OK, Level.WARNING]
