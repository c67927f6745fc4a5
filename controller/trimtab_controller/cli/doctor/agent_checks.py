"""Judges what agents and controllers report.  No I/O here; times are epoch seconds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_controller.cli.doctor.findings import Check, Finding, fault, listed, not_checked, ok, warning
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import Absence, Report, WorkerState
from trimtab_protocol.signing.hosts import HostChecking

CLOCK_TOLERANCE_S = 2.0
MISSED_REPORTS = 3
MANY_REPORTS = 1.5
"""By which factor the reports of a host must cover more than the time that was looked at; one agent may restart."""
ROUNDING = 1e-6
"""By how much the share of two durations may miss a whole number."""
SILENT_AFTER_S = 15.0
"""Age from which a status counts as silence; a controller publishes one every 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSeen:
    """The last report of a host.  `stamped_at` is the broker's time; None if senders date their records.

    `number` = how many reports have come under its name.
    """

    report: Report
    stamped_at: float | None
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsSeen:
    """The last report of each host on the topic, from the last `looked_back_s` before `now`.

    `unreadable`: hosts whose last report cannot be read.  `complete` False: there were more reports than could be read
    in time.  `refusing`: hosts whose agents refused a record because of its signature, and the kind of refusal.
    `unsigned`: hosts that did not sign their last report with a key of theirs, and what is wrong; None: not looked at.
    """

    now: float
    looked_back_s: float
    hosts: Mapping[HostId, ReportSeen] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    complete: bool = True
    refusing: Mapping[HostId, str] = field(default_factory=dict)
    unsigned: Mapping[HostId, str] | None = None

    @property
    def apps(self) -> frozenset[str]:
        """The apps of the workers that were reported."""
        return frozenset(
            each.app for seen in self.hosts.values() for each in seen.report.workers if each.app is not None
        )

    def age_s(self, seen: ReportSeen) -> float:
        """The age of a report, by the best available clock."""
        return self.now - (seen.report.at_ms / 1000.0 if seen.stamped_at is None else seen.stamped_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSeen:
    """The controllers: `leader` and `standbys` according to the broker, the rest from the status.

    `heard_s`: age of the status of an acting controller; None: there is none.  `dry_run_heard_s`: the same for a dry
    run.  `hold`, `paused`: the reasons in the status.
    """

    leader: str | None
    standbys: tuple[str, ...] = ()
    heard_s: float | None = None
    dry_run_heard_s: float | None = None
    hold: str | None = None
    paused: str | None = None


def judge_clocks(seen: ReportsSeen) -> Iterator[Finding]:
    """Compare the brokers' clock with this host's, and the agents' clocks with the brokers'."""
    stamped = {host: (each, each.stamped_at) for host, each in seen.hosts.items() if each.stamped_at is not None}
    remedy = "have NTP (chrony, systemd-timesyncd) set the clocks of brokers, workers' hosts and controllers"
    if not stamped:
        text = "no recent report that a broker has stamped with its time"
        yield not_checked(Check.CLOCKS, text, "start the agents; the topic of reports needs LogAppendTime")
        return
    newest, at = max(stamped.values(), key=lambda pair: pair[1])
    ahead_s = at - seen.now
    good = True
    if ahead_s > CLOCK_TOLERANCE_S:
        good = False
        yield fault(Check.CLOCKS, f"the broker's clock is {ahead_s:.1f} s ahead of this host's", remedy)
    elif -ahead_s > newest.report.interval_s + CLOCK_TOLERANCE_S:
        good = False
        text = f"the newest report is {-ahead_s:.1f} s old: either no agent reports, or this host's clock is ahead"
        yield warning(Check.CLOCKS, text, remedy)
    off = []
    for host, (each, stamped_at) in stamped.items():
        skew_s = each.report.at_ms / 1000.0 - stamped_at
        # A report may come late, never early.
        if skew_s > CLOCK_TOLERANCE_S or -skew_s > each.report.interval_s + CLOCK_TOLERANCE_S:
            off.append(f"{host} ({skew_s:+.1f} s)")
    if off:
        yield warning(Check.CLOCKS, f"off from the broker's clock, or late with reports: {listed(off)}", remedy)
    elif good:
        yield ok(Check.CLOCKS, f"this host, the broker and {len(stamped)} agents agree within {CLOCK_TOLERANCE_S:g} s")


def judge_agents(seen: ReportsSeen, expected: frozenset[HostId] | None) -> Iterator[Finding]:
    """Which hosts report, and which workers are steered."""
    if not seen.hosts:
        text = f"no agent has reported in the last {seen.looked_back_s:g} s"
        yield fault(Check.AGENTS, text, "start `trimtab-agent run` on the workers' hosts; `trimtab-agent check` helps")
    else:
        yield ok(Check.AGENTS, _overview(seen))
    if not seen.complete:
        yield not_checked(Check.AGENTS, "there were more reports than could be read in time: some hosts may be missing")
    missing = (expected or frozenset()) - seen.hosts.keys() if seen.complete else frozenset()
    if missing and seen.hosts:
        text = f"expected, but silent: {listed(missing)}"
        yield fault(Check.AGENTS, text, "start their agents, or correct [stream] expected_hosts")
    if expected is not None and (more := seen.hosts.keys() - expected):
        yield warning(Check.AGENTS, f"not expected, so ignored: {listed(more)}", "add them to [stream] expected_hosts")
    if seen.unreadable:
        text = f"their reports cannot be read: {listed(seen.unreadable)}"
        yield fault(Check.AGENTS, text, "upgrade agents and controllers to versions that fit: see CHANGELOG.md")
    twice = [
        host
        for host, each in seen.hosts.items()
        if each.number > 2 and each.number * each.report.interval_s > MANY_REPORTS * seen.looked_back_s
    ]
    if twice:
        text = f"more reports than one agent makes: {listed(twice)}"
        remedy = "if two agents have this [agent] host, give each a name of its own: both answer its commands"
        yield fault(Check.AGENTS, text, remedy)
    late = [
        f"{host} ({seen.age_s(each):.0f} s)"
        for host, each in seen.hosts.items()
        if seen.age_s(each) > MISSED_REPORTS * each.report.interval_s + CLOCK_TOLERANCE_S
    ]
    if late:
        text = f"no report for a while: {listed(late)}"
        yield warning(Check.AGENTS, text, "look at the agent's log on these hosts")
    yield from _judge_workers(seen)


def judge_windows(seen: ReportsSeen, window_s: float) -> Iterator[Finding]:
    """Whether each host's reports fill a window."""
    odd = [
        f"{host} ({each.report.interval_s:g} s)"
        for host, each in seen.hosts.items()
        if not _is_multiple(window_s, each.report.interval_s)
    ]
    if odd:
        text = f"stream.window_s is {window_s:g} s, no multiple of the interval at which these report: {listed(odd)}"
        remedy = "set window_s in controller.toml to a multiple of [agent] interval_s: windows lack such hosts"
        yield warning(Check.AGENTS, text, remedy)


def _is_multiple(window_s: float, interval_s: float) -> bool:
    times = window_s / interval_s
    return round(times) >= 1 and abs(times - round(times)) < ROUNDING


def judge_signatures(seen: ReportsSeen, checking: HostChecking) -> Iterator[Finding]:
    """Whether each host signs its reports with a key of its own."""
    if checking is HostChecking.OFF or seen.unsigned is None or not seen.hosts:
        return
    if not seen.unsigned:
        yield ok(Check.SIGNING, f"all {len(seen.hosts)} hosts sign their reports with keys of their own")
        return
    named = listed(f"{host} ({fault})" for host, fault in seen.unsigned.items())
    remedy = "`trimtab keys enroll HOST`, then restart its agent; see runbooks/unsigned_messages.md"
    if checking is HostChecking.ENFORCE:
        yield fault(Check.SIGNING, f"no key of theirs has signed their last report, so it is dropped: {named}", remedy)
    else:
        yield warning(Check.SIGNING, f"no key of theirs has signed their last report: {named}", remedy)


def _overview(seen: ReportsSeen) -> str:
    workers = [worker for each in seen.hosts.values() for worker in each.report.workers]
    steered = sum(worker.steering for worker in workers)
    oldest_s = max(0.0, *(seen.age_s(each) for each in seen.hosts.values()))
    count = len(seen.hosts)
    hosts = f"{count} host{'s report' if count != 1 else ' reports'}, the oldest last report is {oldest_s:.0f} s old"
    return f"{hosts}; {steered} of {len(workers)} workers steered"


def _judge_workers(seen: ReportsSeen) -> Iterator[Finding]:
    away, only_report, told = [], [], []
    for host, each in seen.hosts.items():
        for worker in each.report.workers:
            if worker.absence is Absence.STOPPED:
                continue  # of the pool, or drained: it is meant to be away
            if worker.state is WorkerState.AWAY:
                away.append(f"{worker.worker} on {host}")
            elif not worker.steering:
                reason = worker.reason or worker.unknown
                why = "" if reason is None else f": {reason}"
                only_report.append(f"{worker.worker} on {host}{why}")
            elif worker.reason is not None:
                told.append(f"{worker.worker} on {host}: {worker.reason}")
    if away:
        text = f"not connected to their agents: {listed(away)}"
        remedy = "start them; the app must call install(app), and TRIMTAB_SOCKET must be the agent's socket"
        yield warning(Check.AGENTS, text, remedy)
    if only_report:
        text = f"these workers only report, so they are not balanced: {listed(only_report)}"
        yield warning(Check.AGENTS, text, "see the worker's log, and `trimtab runbook worker_not_steering`")
    if told:
        yield warning(Check.AGENTS, f"these workers run, but: {listed(told)}", "see the worker's log for details")


def judge_refusals(seen: ReportsSeen) -> Iterator[Finding]:
    """Which agents refuse records because of their signatures."""
    if seen.refusing:
        text = f"recently refused a signature: {listed(f'{host} ({how})' for host, how in seen.refusing.items())}"
        yield warning(Check.SIGNING, text, "copy the trust file to these hosts; see `trimtab runbook bad_commands`")


def judge_leader(seen: LeaderSeen) -> Iterator[Finding]:
    """Whether a controller leads and works."""
    start = "start `trimtab controller run --act`; see `trimtab runbook no_leader`"
    waiting: Sequence[str] = seen.standbys
    also = f"; standing by: {listed(waiting)}" if waiting else ""
    dry_run = seen.dry_run_heard_s is not None and seen.dry_run_heard_s <= SILENT_AFTER_S
    if seen.leader is None and dry_run:
        text = "only a dry run is running: plans are logged, nothing moves"
        yield warning(Check.LEADER, text, "when you trust its plans: `trimtab controller run --act`")
    elif seen.leader is None:
        yield fault(Check.LEADER, f"no controller leads{also}", start)
    elif seen.heard_s is None or seen.heard_s > SILENT_AFTER_S:
        since = "never" if seen.heard_s is None else f"{seen.heard_s:.0f} s ago"
        text = f"{seen.leader} leads, but its last status came {since}{also}"
        yield warning(Check.LEADER, text, "wait if it has just started; otherwise see its log")
    else:
        yield ok(Check.LEADER, f"{seen.leader} leads{also}")
    if seen.hold is not None:
        text = f"on hold, nothing moves: {seen.hold}"
        yield fault(Check.LEADER, text, "see `trimtab runbook journal`; `trimtab resume --accept-journal` ends it")
    if seen.paused is not None:
        yield warning(Check.LEADER, seen.paused, "`trimtab resume` ends the pause")
