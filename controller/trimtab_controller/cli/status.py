"""`trimtab status` and `trimtab rule list`: what the controller tells, readable in 80 columns.

What an operator on call needs first comes first.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli.operator import (
    CommandError,
    Intents,
    Target,
    console,
    new_table,
    print_json,
    read_intents,
    read_status,
)
from trimtab_controller.decider.values.rules import still_wanted
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.leadership.group import Member, members
from trimtab_controller.loop.events.of_status import worded
from trimtab_controller.seen import OLD_SNAPSHOT_S, SILENT_AFTER_S, Seen, State, summary
from trimtab_process.exit_codes import DONE
from trimtab_protocol.messages.codec import document, encoded
from trimtab_protocol.messages.decode import Fault, printable
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import LATEST_END
from trimtab_protocol.messages.status import (
    SHOWN_FROM_S,
    AppStatus,
    CollocationStatus,
    DisruptionStatus,
    HostStatus,
    NodeStatus,
    ProposalStatus,
    RedundancyStatus,
    RemoteCostStatus,
    RoundStatus,
    RuleStatus,
    SizeStatus,
    Status,
)
from trimtab_protocol.wording import counted, first_few, time_span

SHOWN_DECISIONS, SHOWN_REASONS = 5, 10
INDENT = (0, 0, 0, 2)
LEVELS = ("light", "moderate", "heavy")
"""How busy workers are, in order."""
STYLES = {
    State.SILENT: "bold white on red",
    State.HOLD: "bold white on red",
    State.PAUSED: "bold black on yellow",
    State.ACTING: "bold green",
    State.DRY_RUN: "bold cyan",
}
SHOWN_ROUNDS, SHOWN_PLANS, SHOWN_MOVES, SHOWN_INTENTS = 3, 5, 5, 10
SHOWN_NODES = 20
"""Number of workers, and of hosts, that are shown unless all are asked for."""
US = 1e6
NO_TUPLES, FEW = "no tuples between key groups", "too few key groups differ"
"""What `trimtab_models.albic.fit.Unknown` says; the command does without the models."""
BRIEF_APPS = 5
BRIEF_DECISIONS = ("last decision", "the one before")


def run_status(args: argparse.Namespace, target: Target) -> int:
    """Print leader and standbys, workers, loads, plan in flight and last decisions."""
    seen = look(target)
    if args.json:
        controllers = None if seen.controllers is None else [asdict(row) for row in seen.controllers]
        wanted = {"controllers": controllers, "wanted": intents_documents(seen.intents, seen.now)}
        print_json({**summary(seen), **json.loads(encoded(seen.status)), **wanted})
    else:
        show_status(seen, console(), all_nodes=args.all)
    return DONE


def _read_what_is_wanted(target: Target) -> Intents | None:
    """The intents in force; None if they cannot be read, because the rest of the status is still worth showing."""
    try:
        return read_intents(target)
    except (ReadError, KafkaException):
        return None


def look(target: Target) -> Seen:
    """What the controllers have reported last.  Raises CommandError, ReadError, KafkaException."""
    status = read_status(target)
    if status is None:
        cluster = target.configuration.cluster
        raise CommandError(
            f"no controller has reported on cluster {cluster} yet: start one by `trimtab controller run`"
        )
    controllers, intents = _controllers(target), _read_what_is_wanted(target)
    return Seen(status=status, controllers=controllers, intents=intents, now=time.time())


def _controllers(target: Target) -> tuple[Member, ...] | None:
    """The group of controllers; None when the broker does not answer, since the rest is still worth showing."""
    try:
        return members(AdminClient(target.connection.client("trimtab-status")), target.topics.cluster)
    except (KafkaException, TimeoutError):
        return None


def show_status(seen: Seen, console: Console, *, all_nodes: bool = False) -> None:
    """Print the whole status."""
    status = seen.status
    console.print(headline(seen))
    if status.decisions:
        last = status.decisions[-1]
        console.print(Text(f"last decision {time_span(seen.now - last.at)} ago: {last.text}"))
    for line in _remedies(seen):
        console.print(line)
    for title, part in (
        ("apps", _apps(status)),
        ("pool", _pool(status)),
        (_nodes_title(status, all_nodes=all_nodes), _nodes(status, all_nodes=all_nodes)),
        (hosts_title(status, all_nodes=all_nodes), hosts_table(status, all_nodes=all_nodes)),
        ("fixed workers: plans are made around them", _fixed(status)),
        ("what workers report", _reasons(status)),
        ("what operators want", intents_text(seen.intents, seen.now)),
        ("plans that wait for approval", waiting_plans(status, seen.now)),
        ("plans in flight", plans_in_flight(status, seen.now)),
        ("last plans", last_plans(status)),
        ("earlier decisions", _decisions(status)),
        ("refused messages", _rejected(status)),
        ("signatures of hosts", signatures_text(status)),
    ):
        if part is not None:
            console.print()
            console.print(Text(title, style="bold"))
            console.print(Padding(part, INDENT, expand=False))


def headline(seen: Seen) -> Text:
    """Cluster, state, leader, epoch and the age of the last window."""
    status = seen.status
    text = Text.assemble((status.cluster, "bold"), "  ", (str(seen.state).upper(), STYLES[seen.state]), "  ")
    text.append(f"{_leadership(seen)}, epoch {status.epoch}, ")
    if seen.snapshot_age_s is None:
        text.append("no snapshot yet", "yellow")
    else:
        old = seen.snapshot_age_s > OLD_SNAPSHOT_S
        text.append(f"snapshot {time_span(seen.snapshot_age_s)} old", "yellow" if old else "")
        if status.coverage is not None and status.coverage < 1.0:
            text.append(f", from {status.coverage:.0%} of the hosts", "yellow")
    return text


def _leadership(seen: Seen) -> str:
    if seen.controllers is None:
        return "leader unknown"
    waiting = len(seen.controllers) - (seen.leader is not None)
    standbys = f", {waiting} stand{'s' if waiting == 1 else ''} by" if waiting else ""
    return (f"{seen.leader} leads" if seen.leader else "no leader") + standbys


def _remedies(seen: Seen) -> Iterator[Text]:
    """The problems, and what to do about each."""
    status = seen.status
    if seen.silent_s > SILENT_AFTER_S:
        yield Text(
            f"No status from the controller for {time_span(seen.silent_s)}; everything below is that old.", "bold red"
        )
        yield Text(
            "Workers continue with their last placement. Is `trimtab controller run` alive? Is its host's clock right? "
            "What does its log say?"
        )
    if status.hold:
        yield Text(f"On hold, nothing moves: {status.hold.text}.", "bold red")
        yield Text("A plan may have been in flight. To start over from the placement and the workers' reports:")
        yield Text("  trimtab resume --accept-journal", "bold")
    if (paused := seen.paused) is not None:
        yield Text(f"{paused[:1].upper()}{paused[1:]}. `trimtab resume` ends the pause.", "yellow")
    if _refuses_windows(seen):
        yield Text(
            "Windows come and are refused, since they are dated ahead: the controller's clock is behind the broker's.",
            "yellow",
        )
    elif seen.snapshot_age_s is None:
        yield Text("The stream needs half a minute to start, and agents must report.")
        yield Text("If that takes longer: `trimtab health` on the controller's host says whether the stream has ended.")
    elif seen.snapshot_age_s > OLD_SNAPSHOT_S and seen.silent_s <= SILENT_AFTER_S:
        yield Text(
            "No new windows arrive, or the controller's clock is ahead. Do the agents report? Does the stream run? "
            "See the controller's log.",
            "yellow",
        )
    if seen.controllers is None:
        yield Text("The leader is unknown: the broker did not answer in time.", "yellow")
    for concern in status.concerns:
        yield Text(f"{concern.kind} ({concern.app}): {concern.text}", "bold yellow")
    if seen.runbook is not None:
        yield Text(f"What to check and what to do: trimtab runbook {seen.runbook}")


def _refuses_windows(seen: Seen) -> bool:
    """Whether no window is known, or an old one only, and later ones were dated ahead of the controller's clock."""
    refused = seen.status.rejected.get(f"{Topics(seen.status.cluster).snapshots}.{Fault.FUTURE}", 0)
    return refused > 0 and (seen.snapshot_age_s is None or seen.snapshot_age_s > OLD_SNAPSHOT_S)


def _apps(status: Status) -> Table | None:
    if not status.apps:
        return None
    table = Table.grid(padding=(0, 2))
    for app in status.apps:
        table.add_row(Text(app.app), _mode(app).append(_app(app, status.at)).append(_levels(app, status)))
    return table


def _mode(app: AppStatus) -> Text:
    """What becomes of its plans, unless they are simply carried out."""
    told = {"approve": "plans wait for approval\n", "dry-run": "dry run: plans are only shown\n"}
    return Text(told.get(app.mode or "", ""), "cyan")


def _levels(app: AppStatus, status: Status) -> Text:
    """How many workers are light, moderate and heavy, and which are heavy."""
    workers: defaultdict[str, list[str]] = defaultdict(list)
    for row in status.nodes:
        if row.app == app.app and row.level is not None:
            workers[row.level].append(row.worker)
    counts = ", ".join(f"{len(workers[level])} {level}" for level in LEVELS if workers[level])
    heavy = workers[LEVELS[-1]]
    return Text(f"\nworkers: {counts}" + (f" ({first_few(heavy)})" if heavy else "")) if counts else Text()


def _app(app: AppStatus, at: float) -> Text:
    text = app_line(app)
    if line := restart_line(app):
        text.append(f"\n{line}", "cyan")
    if line := disruption_line(app, at):
        spent = app.disruption is not None and app.disruption.fits == 0
        text.append(f"\n{line}", "yellow" if spent else "")
    if app.not_ready or app.load_distance is None:
        return text
    text.append(_n_minus_1(app)).append(headroom_text(app))
    for line in (collocation_line(app), *local_topic_lines(app)):
        text.append(f"\n{line}" if line else "")
    if app.size is not None:
        text.append(f"\nsize: {app.size.text}{_starts(app.size)}{_own(app.size)}")
    if app.forecast is not None:
        text.append(f"\nforecast: {app.forecast.text}")
    return text


def restart_line(app: AppStatus) -> str:
    """How far the rolling restart of an app is; empty if there is none."""
    found = app.restart
    if found is None:
        return ""
    now = f", now those on {found.host}" if found.host is not None else ""
    skipped = f"; left out: {first_few(found.skipped)}" if found.skipped else ""
    without = f"; without a drain, since nothing may move: {found.differ}" if found.differ is not None else ""
    waits = f"; waits: {found.waits}" if found.waits is not None else ""
    return f"rolling restart: {found.done} of {found.workers} workers{now}{skipped}{without}{waits}"


def app_line(app: AppStatus) -> Text:
    """Load distance, mean load and key groups of an app, or why there is no load distance."""
    if app.not_ready:
        return Text(f"not ready: {app.not_ready}", "yellow")
    if app.load_distance is None:
        return Text("no load distance: every worker is being drained", "yellow")
    noise = f" (noise {app.noise:.1f})" if app.noise is not None else ""
    mean = f", mean load {app.mean_load:.1f} %" if app.mean_load is not None else ""
    together = f", collocation {app.collocation:.0%}" if app.collocation is not None else ""
    local = f", local sends {app.local_sends:.0%}" if app.local_sends is not None else ""
    text = Text(f"load distance {app.load_distance:.1f} pp{noise}{mean}{together}{local}, {app.key_groups} key groups")
    if app.redundancy is not None and app.redundancy.lacking:
        text.append(f", {_redundancy(app.redundancy)}", "yellow")
    elif app.missing_standbys:
        text.append(f", {app.missing_standbys} lack a standby", "yellow")
    if app.unknown_load:
        text.append(f", {app.unknown_load:.1%} of the load is unknown", "yellow")
    return text


def _redundancy(found: RedundancyStatus) -> str:
    """For how long key groups have lacked an owner or a warm standby, or did the last time."""
    plan = "nothing planned"
    if found.planned_s is not None and found.bound_s is not None:
        plan = f"{found.planned_s:.0f} planned, bound {found.bound_s:.0f}"
    if found.lacking:
        return f"{found.lacking} lack an owner or a warm standby for {found.measured_s:.0f} s ({plan})"
    return f"all had owner and warm standby again after {found.measured_s:.0f} s ({plan})"


def _starts(size: SizeStatus) -> str:
    if size.measured_restart_s is None:
        return ""
    configured = f", restart_s is {size.restart_s:g} s" if size.restart_s is not None else ""
    return f"; started workers ran after {size.measured_restart_s:.0f} s at most{configured}"


def _own(size: SizeStatus) -> str:
    return f"; own settings: {', '.join(size.own_settings)}" if size.own_settings else ""


def _n_minus_1(app: AppStatus) -> Text:
    """What the loss of one host leads to."""
    if app.n_minus_1_pct is None:
        return Text()
    bound = "" if app.n_minus_1_bound_pct is None else f", bound {app.n_minus_1_bound_pct:.0f} %"
    at = f" at {app.n_minus_1_worker}" if app.n_minus_1_worker else ""
    lost = f" after losing {first_few(app.n_minus_1_lost)}" if app.n_minus_1_lost else ""
    share = app.following_share
    following = "" if share is None else f"; following a key group costs {share:.0%} of its load"
    again = "" if app.redundancy is None or app.redundancy.lacking else f"; {_redundancy(app.redundancy)}"
    color = "yellow" if app.n_minus_1_pct > 100.0 else ""
    return Text(f"\nN-1: {app.n_minus_1_pct:.0f} %{at}{lost}{bound}{following}{again}", color)


def _pool(status: Status) -> Table | None:
    """The workers that can be started, by app."""
    if not status.pool:
        return None
    pools: defaultdict[str, list[str]] = defaultdict(list)
    for row in status.pool:
        pools[row.app].append(f"{row.worker} on {row.host}")
    table = Table.grid(padding=(0, 2))
    for app, workers in pools.items():
        can = f"{counted(len(workers), 'worker')} can be started"
        table.add_row(Text(app), Text(f"{can}: {first_few(workers)}"))
    return table


def _nodes_title(status: Status, *, all_nodes: bool) -> str:
    count = len(status.nodes)
    if all_nodes or count <= SHOWN_NODES:
        return "workers"
    return f"workers, {SHOWN_NODES} of {count}: those with remarks first, then the most loaded (--all shows all)"


def _nodes(status: Status, *, all_nodes: bool) -> Table | None:
    rows = list(status.nodes)
    if not rows:
        return None
    if not all_nodes and len(rows) > SHOWN_NODES:
        rows = sorted(rows, key=lambda row: (not _needs_a_look(row), -most(row.load_pct, row.used_pct, row.demand_pct)))
        rows = rows[:SHOWN_NODES]
    several = len({row.app for row in status.nodes if row.app}) > 1
    leaving = {worker for app in status.apps if app.size is not None for worker in app.size.leaving}
    numbers = ("used\n%", "load\n%", "demand\n%", "backlog", "memory", "cores", "key\ngroups")
    names = ("worker", "host", *(["app"] if several else []), *numbers, "")
    table = new_table(names, right=numbers, narrow=True)
    for row in rows:
        percents = (or_unknown(pct, "{:.0f}") for pct in (row.used_pct, row.load_pct, row.demand_pct))
        sizes = (or_unknown(row.backlog, "{:,}"), size_of(row.memory_bytes))
        app = [Text(row.app or "")] if several else []
        cells = map(Text, (*percents, *sizes, f"{row.capacity:g}", str(row.key_groups)))
        table.add_row(Text(row.worker), Text(row.host), *app, *cells, Text(", ".join(_remarks(row, leaving)), "yellow"))
    return table


def _needs_a_look(row: NodeStatus) -> bool:
    """Whether there are remarks on a worker; that one of the pool does not run is none."""
    return bool(_remarks(row)) and row.absence is not Absence.STOPPED


def _remarks(row: NodeStatus, leaving: Collection[str] = ()) -> list[str]:
    """How a worker differs from one that runs and is steered; those of `leaving` are drained to make an app smaller."""
    remarks = [] if row.state is WorkerState.RUNNING else [str(row.absence or row.state)]
    if most(row.used_pct, row.demand_pct) > 100.0:
        remarks.append("over capacity")
    if row.draining:
        remarks.append(("leaving" if row.worker in leaving else "draining") if row.key_groups else "drained")
    if not row.steering and row.state is not WorkerState.AWAY:
        remarks.append("only reports")
    return remarks


def _fixed(status: Status) -> Text | None:
    """A line for each app and reason: which workers are fixed."""
    by_reason: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for app in status.apps:
        for row in app.fixed:
            by_reason[app.app, f"{row.reason}, {row.text}" if row.text else row.reason].append(row.worker)
    said = [f"{app}: {first_few(workers)}: {why}" for (app, why), workers in sorted(by_reason.items())]
    return Text("\n".join(said[:SHOWN_REASONS]), "yellow") if said else None


def _reasons(status: Status) -> Text | None:
    """A sentence for each reason: which workers only report, which steered workers lack something, which are away."""
    reporting: defaultdict[str, list[str]] = defaultdict(list)
    lacking: defaultdict[str, list[str]] = defaultdict(list)
    away: defaultdict[str, list[str]] = defaultdict(list)
    for row in status.nodes:
        if row.state is WorkerState.AWAY:
            if row.reason:
                away[row.reason].append(row.worker)
        elif not row.steering:
            reporting[row.reason or "no reason given, see the agents' logs"].append(row.worker)
        elif row.reason:
            lacking[row.reason].append(row.worker)
    said = [
        f"{first_few(workers)} only report{_s(workers)}: {reason}" for reason, workers in sorted(reporting.items())
    ] + [f"{first_few(workers)} run{_s(workers)}, but {reason}" for reason, workers in sorted(lacking.items())]
    said += [f"away: {first_few(workers)}: {reason}" for reason, workers in sorted(away.items())]
    return Text("\n".join(said[:SHOWN_REASONS]), "yellow") if said else None


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


def _decisions(status: Status) -> Table | None:
    """The decisions before the last one, newest first; the last one is shown at the top."""
    if len(status.decisions) < 2:
        return None
    table = Table.grid(padding=(0, 2))
    for row in reversed(status.decisions[-1 - SHOWN_DECISIONS : -1]):
        table.add_row(clock(row.at), Text(row.text))
    return table


def _rejected(status: Status) -> Text | None:
    listed = ", ".join(f"{name}: {count}" for name, count in sorted(status.rejected.items()))
    return Text("\n".join([listed, *_refused_hosts(status)]), "yellow") if listed else None


def _refused_hosts(status: Status) -> Iterator[str]:
    """In whose name they came.  Names are what the messages say, so they are no proof of who has sent them."""
    found = status.refused_hosts
    if not found.worst:
        return
    yield "by the host that they name, which may not be the one that sent them:"
    for row in found.worst[:SHOWN_REASONS]:
        yield f"  {row.host}: {row.messages} {row.topic}.{row.fault}, the last {time_span(status.at - row.at)} ago"
    if (more := found.more + len(found.worst[SHOWN_REASONS:])) > 0:
        yield f"  and {more} more"


# --- plans ------------------------------------------------------------------------------------------------------------


def plans_in_flight(status: Status, now: float) -> Text | None:
    """The plans in flight, the oldest first."""
    rows = sorted(status.plans_in_flight, key=lambda row: row.started_at)
    return _first_plans([_plan_in_flight(row, now) for row in rows])


def waiting_plans(status: Status, now: float) -> Text | None:
    """The plans that wait for approval, and those that were rejected a short while ago."""
    rows = sorted(status.proposals, key=lambda row: (row.rejected is not None, row.at))
    return _first_plans([_waiting(row, now) for row in rows])


def _first_plans(said: Sequence[str]) -> Text | None:
    more = [f"and {len(said) - SHOWN_PLANS} more"] if len(said) > SHOWN_PLANS else []
    return Text("\n".join([*said[:SHOWN_PLANS], *more])) if said else None


def _waiting(row: ProposalStatus, now: float) -> str:
    left = time_span(row.expires_at - now)
    if row.rejected is not None:
        told = f"{row.plan} of {row.app} was rejected {row.rejected}"
        return f"{told}; nothing else is proposed for {left}, unless loads change"
    warm = f" ({row.to_standbys} to standbys)" if row.to_standbys else ""
    unknown = f" and that of {counted(row.unmeasured, 'key group')} of unknown size" if row.unmeasured else ""
    moves = [f"  {each.key_group} from {each.source} to {each.target}" for each in row.moves[:SHOWN_MOVES]]
    more = [f"  and {row.moves_total - SHOWN_MOVES} more"] if row.moves_total > SHOWN_MOVES else []
    return "\n".join(
        [
            f"{row.plan} of {row.app}, proposed {time_span(now - row.at)} ago, expires in {left}: {row.reason}",
            f"load distance {row.before:.1f} -> {row.planned:.1f} planned (bound {row.lower_bound:.1f}), "
            f"{counted(row.moves_total, 'move')}{warm}, {row.restore_bytes / 1e6:.1f} MB of state to restore{unknown}",
            *moves,
            *more,
            f"trimtab approve {row.plan}, or trimtab reject {row.plan} --reason TEXT",
        ]
    )


def _plan_in_flight(row: RoundStatus, now: float) -> str:
    total = sum(row.handovers.values())
    phases = ", ".join(f"{count} {phase}" for phase, count in row.handovers.items() if count)
    stopped = "" if row.stopped is None else f"; {row.stopped}"
    return (
        f"{row.plan} of {row.app}, started {time_span(now - row.started_at)} ago: {row.reason}\n"
        f"load distance {row.before:.1f} -> {row.planned:.1f} planned (bound {row.lower_bound:.1f})\n"
        f"{counted(total, 'hand-over')}: {phases}; {counted(row.migrations, 'key group')} moved so far{stopped}"
        f"{_recovery_planned(row)}"
    )


def _recovery_planned(row: RoundStatus) -> str:
    """When all targets should be warm; empty if their restores are not scheduled."""
    if row.recovery_planned_s is None or row.recovery_bound_s is None:
        return ""
    links = f"; a default for unknown links of {first_few(row.unknown_links)}" if row.unknown_links else ""
    return f"\nall warm after {row.recovery_planned_s:.1f} s planned (bound {row.recovery_bound_s:.1f} s){links}"


def last_plans(status: Status) -> Table | None:
    """The plans that ended last, the newest first."""
    ended = [row for row in status.rounds if row.ended_at is not None]
    if not ended:
        return None
    table = Table.grid(padding=(0, 2))
    for row in reversed(ended[-SHOWN_ROUNDS:]):
        table.add_row(clock(row.started_at), Text(row.plan), _outcome(row))
    return table


def _outcome(row: RoundStatus) -> Text:
    after = f"{row.planned:.1f} planned" if row.after is None else f"{row.after:.1f} ({row.planned:.1f} planned)"
    text = Text(f"{row.reason}\n{row.before:.1f} -> {after}, {counted(row.migrations, 'key group')} moved")
    if row.recovery_s is not None and row.recovery_planned_s is not None and row.recovery_bound_s is not None:
        text.append(
            f", warm after {row.recovery_s:.1f} s ({row.recovery_planned_s:.1f} planned, "
            f"bound {row.recovery_bound_s:.1f})"
        )
    if row.saved_planned_pp is not None:
        saved = "" if row.saved_pp is None else f"{row.saved_pp:.1f} pp of load saved by collocation, "
        unit = " pp of load to be saved by collocation" if row.saved_pp is None else " planned"
        text.append(f", {saved}{row.saved_planned_pp:.1f}{unit}")
    if row.failed:
        text.append(f", {row.failed} failed", "red")
    if row.stopped:
        text.append(f", {row.stopped}", "yellow")
    if row.incomparable:
        text.append(f", cannot be compared: {row.incomparable}", "yellow")
    return text.append(f", pause {statistics.median(row.pauses_s):.2f} s" if row.pauses_s else "")


def clock(at: float) -> str:
    """A time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


# --- hosts, and how tables write numbers ------------------------------------------------------------------------------


def hosts_title(status: Status, *, all_nodes: bool) -> str:
    """The heading of the hosts."""
    count = len(status.hosts)
    return "hosts" if all_nodes or count <= SHOWN_NODES else f"hosts, {SHOWN_NODES} of {count}: the most used"


def hosts_table(status: Status, *, all_nodes: bool) -> Table | None:
    """CPU, memory, link and, where agents report it, disk of the hosts; the most used ones, if there are many."""
    rows = list(status.hosts)
    if not rows:
        return None
    if not all_nodes and len(rows) > SHOWN_NODES:
        rows = sorted(rows, key=lambda row: -most(row.used_pct))[:SHOWN_NODES]
    several = len({row.type for row in status.hosts}) > 1
    disks = any(disk_pct(row) is not None for row in status.hosts)
    zones = any(row.zone is not None for row in status.hosts)
    optional = (*(["disk %"] if disks else []), *(["speed"] if several else []))
    numbers = ("CPU %", "asked %", "memory", "of", "received/s", "sent/s", *optional)
    table = new_table(("host", *numbers, "bottleneck", *(["zone"] if zones else [])), right=numbers, narrow=True)
    for row in rows:
        sizes = (row.memory_bytes, row.memory_limit_bytes, row.received_bytes_s, row.sent_bytes_s)
        percents = (or_unknown(pct, "{:.0f}") for pct in (row.used_pct, row.demand_pct))
        disk = [or_unknown(disk_pct(row), "{:.0f}")] if disks else []
        speed = [or_unknown(row.speed, "{:.2f}")] if several else []
        zone = [row.zone or "?"] if zones else []
        busiest = ", ".join(part for part in (row.bottleneck, row.level) if part) or "?"
        table.add_row(*map(Text, (row.host, *percents, *map(size_of, sizes), *disk, *speed, busiest, *zone)))
    return table


def disk_pct(row: HostStatus) -> float | None:
    """How full the disk of the workers' state is."""
    if row.disk_free_bytes is None or not row.disk_total_bytes:
        return None
    return 100.0 * (1.0 - row.disk_free_bytes / row.disk_total_bytes)


def headroom_text(app: AppStatus) -> Text:
    """How many times the present input of an app fits, and how well that is known."""
    found = app.capacity
    if found is None or found.headroom is None:
        return Text()
    free = "" if found.potential is None else f", {found.potential:.1f} with free moves"
    by = f", by {found.heaviest} alone" if found.heaviest else ""
    bound = "" if found.bound is None else f" (bound {found.bound:.1f}{by})"
    known = "" if found.accuracy is None else f"; costs predict {found.accuracy:.0%} of the CPU"
    said = f"\nheadroom: {found.headroom:.1f} times the input until {found.first} is full{free}{bound}{known}"
    return Text(said, "yellow" if found.headroom < 1.0 else "")


def most(*percents: float | None) -> float:
    """The largest; an unknown one counts as 0."""
    return max(pct or 0.0 for pct in percents)


def or_unknown(value: float | None, form: str) -> str:
    """The value in this format; `?` if it is unknown."""
    return "?" if value is None else form.format(value)


def size_of(count: float | None) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"


# --- tuples between workers -------------------------------------------------------------------------------------------


def collocation_line(app: AppStatus) -> str:
    """One line: the costs with their errors, and what could be local and saved; empty if no tuples are exchanged."""
    found = app.remote_costs
    if found is None or not found.operators:
        return ""
    known = any(cost.value is not None for _, cost in _ends(found))
    first = "" if known or app.local_sends != 0.0 else "; a first topic in local= of the plug-in would show it"
    return f"remote tuples: {_costs(found)}{first}{_obtainable(found)}"


def _costs(found: CollocationStatus) -> str:
    known = [(text, cost) for text, cost in _ends(found) if cost.value is not None]
    counted = [text for text, cost in known if cost.significant]
    if counted:
        return f"{first_few(counted)} more CPU each{_few(found)}"
    if known:
        return f"no significant cost, {first_few(text for text, _ in known)}"
    reasons = dict.fromkeys(cost.unknown for _, cost in _ends(found) if cost.unknown)
    told = first_few(reason for reason in reasons if reason)
    return f"their cost is unknown, {told}" if told else "their cost is unknown"  # a new leader knows no reason yet


def _few(found: CollocationStatus) -> str:
    """The ends that stay unknown, because too few key groups have tuples; in words."""
    few = [text for text, cost in _ends(found) if cost.unknown == FEW]
    return f"; {first_few(few)}: not known, {FEW}" if few else ""


def _ends(found: CollocationStatus) -> Iterator[tuple[str, RemoteCostStatus]]:
    """Each end of an operator that exchanges tuples, in words."""
    for row in found.operators:
        for way, cost in (("sends", row.sending), ("receives", row.receiving)):
            if cost.value is not None and cost.error is not None:
                yield f"{row.operator} {way} at {US * cost.value:.0f} ± {US * cost.error:.0f} us", cost
            elif cost.unknown != NO_TUPLES:
                yield f"{row.operator} {way}", cost


def _obtainable(found: CollocationStatus) -> str:
    if found.obtainable is None:
        return ""
    saved = f", to save {found.worth_cores:.2f} cores" if found.worth_cores else ""
    return f"; at most {found.obtainable:.0%} can be local{saved}"


def local_topic_lines(app: AppStatus) -> list[str]:
    """One line for each topic that could be local."""
    return [each.text for each in app.remote_costs.topics] if app.remote_costs else []


# --- disruption budget ------------------------------------------------------------------------------------------------


def disruption_line(app: AppStatus, now: float) -> str:
    """One line: what has paused, how much of the budget that is, and when there is room; empty if there is nothing."""
    found = app.disruption
    if found is None or (found.limit_s is None and found.used_s < SHOWN_FROM_S):
        return ""
    unknown = f", unknown how long rebalances pause {counted(found.unmeasured, 'worker')}" if found.unmeasured else ""
    return f"{found.used_text(now)}{unknown}{_room(found, now)}"


def _room(found: DisruptionStatus, now: float) -> str:
    if found.limit_s is None or found.fits is None:
        return ""
    if found.fits > 0:
        return f", room for {counted(found.fits, 'key group')}"
    if found.free_at is None:
        return ", too low for a single key group: nothing moves, except after a loss"
    return f", room again in {time_span(found.free_at - now)}: nothing moves until then, except after a loss"


# --- what operators want ----------------------------------------------------------------------------------------------


def intents_text(intents: Mapping[str, Intent | None] | None, now: float) -> Text | None:
    """One line for each, the newest first; None if there are none."""
    if intents is None:
        return Text("unknown: the topic of intents cannot be read", "yellow")
    known = sorted(_wanted(intents, now), key=lambda each: each.at, reverse=True)
    rows = [f"{worded(each)[0]}, by {each.by} {time_span(now - each.at)} ago: {each.reason}" for each in known]
    unread = sorted(key for key, each in intents.items() if each is None)
    rows += [f"{printable(key)}: this version cannot read it" for key in unread]
    more = [f"and {len(rows) - SHOWN_INTENTS} more (--json has all)"] if len(rows) > SHOWN_INTENTS else []
    return Text("\n".join([*rows[:SHOWN_INTENTS], *more])) if rows else None


def intents_documents(intents: Mapping[str, Intent | None] | None, now: float) -> list[dict[str, Any]] | None:
    """The same as JSON; of what cannot be read only the key is known."""
    if intents is None:
        return None
    wanted = {each.key for each in _wanted(intents, now)}
    return [
        {"key": key, "text": None, "by": None, "at": None, "reason": None}
        if each is None
        else {"key": key, "text": worded(each)[0], "by": each.by, "at": each.at, "reason": each.reason}
        for key, each in sorted(intents.items())
        if each is None or key in wanted
    ]


def _wanted(intents: Mapping[str, Intent | None], now: float) -> tuple[Intent, ...]:
    return still_wanted((each for each in intents.values() if each is not None), now)


# --- signatures of hosts ----------------------------------------------------------------------------------------------


def signatures_text(status: Status) -> Text | None:
    """One line; None where nobody looks at the signatures."""
    found = status.signatures
    if found is None:
        return None
    text = Text(f"{found.checking}: {found.enrolled} hosts have a key")
    if found.doubted:
        revoked = dict.fromkeys(found.revoked, "its key is revoked")
        named = ", ".join(f"{host} ({revoked.get(host, fault)})" for host, fault in sorted(found.doubted.items()))
        what = "dropped" if found.enforced else "used"
        text.append(f"; in the last window reports were {what} that these had not signed: {named}", "yellow")
    if found.unsigned:
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(found.unsigned.items()))
        text.append(f"; used without a good signature: {counts}", "yellow")
    return text


# --- the status in a few lines ----------------------------------------------------------------------------------------


def brief_status(seen: Seen) -> list[str]:
    """State and age of the last window, a line for each app, the plans in flight, the last decisions, the runbook."""
    status = seen.status
    lines = [headline(seen).plain]
    for app in status.apps[:BRIEF_APPS]:
        lines += [
            f"{app.app}: {line}"
            for line in (app_line(app).plain, restart_line(app), collocation_line(app), *local_topic_lines(app))
            if line
        ]
    if len(status.apps) > BRIEF_APPS:
        lines.append(f"and {len(status.apps) - BRIEF_APPS} more apps")
    in_flight = plans_in_flight(status, seen.now)
    lines += ["no plan in flight"] if in_flight is None else [f"plan in flight {in_flight.plain}"]
    for name, row in zip(BRIEF_DECISIONS, reversed(status.decisions), strict=False):
        lines.append(f"{name} {time_span(seen.now - row.at)} ago: {row.text}")
    if seen.runbook is not None:
        lines.append(f"What to check and what to do: trimtab runbook {seen.runbook}")
    return "\n".join(lines).splitlines()


# --- rules ------------------------------------------------------------------------------------------------------------


def run_rules(args: argparse.Namespace, target: Target) -> int:
    """Print the rules that the controller knows."""
    status = read_status(target)
    if status is None or status.rules is None:
        raise CommandError("the rules are not known yet: a controller must lead and see a window")
    if args.json:
        print_json({"rules": [document(row) for row in status.rules]})
    elif status.rules:
        console().print(_rules_table(status.rules))
    else:
        print("there are no rules")
    return DONE


def _rule_end(until: float) -> str:
    """The time; one that another version has let pass may be beyond what can be shown."""
    return datetime.fromtimestamp(min(until, LATEST_END), UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _rules_table(rows: tuple[RuleStatus, ...]) -> Table:
    table = new_table(("rule", "kind", "about", "workers", "until", "by", "reason"), narrow=True)
    for row in rows:
        rule, said = row.rule, document(row.rule)
        about = " ".join(said[name] for name in ("app", "operator", "key_groups") if name in said) or "all"
        where = [each for name in ("workers", "hosts", "zones") for each in said.get(name, ())]
        where += [f"priority {rule.priority}"] if rule.priority else []
        until = "" if rule.until is None else _rule_end(rule.until)
        reason = rule.reason if row.ignored is None else f"{rule.reason}; not kept: {row.ignored}"
        cells = (rule.name, rule.kind, about, ", ".join(where), until, row.by or "controller.toml", reason)
        table.add_row(*(Text(cell, "yellow" if row.ignored else "") for cell in cells))
    return table
