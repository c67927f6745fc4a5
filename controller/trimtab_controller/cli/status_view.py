"""Prints the status, readable in 80 columns; what an operator on call needs first comes first."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli.status_collocation import collocation_line
from trimtab_controller.cli.status_disruption import disruption_line
from trimtab_controller.cli.status_hosts import (
    SHOWN_NODES,
    headroom_text,
    hosts_table,
    hosts_title,
    most,
    or_unknown,
    size_of,
)
from trimtab_controller.cli.status_intents import intents_text
from trimtab_controller.cli.status_plans import clock, last_plans, plans_in_flight, waiting_plans
from trimtab_controller.cli.status_signatures import signatures_text
from trimtab_controller.seen import OLD_SNAPSHOT_S, SILENT_AFTER_S, Seen, State
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.status import AppStatus, NodeStatus, SizeStatus, Status
from trimtab_protocol.wording import counted, first_few, time_span

SHOWN_DECISIONS = 5
SHOWN_REASONS = 10
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
    elif seen.is_old:
        yield Text(
            "The controller that leads is older than 0.2.0: most requests are refused until it is upgraded.", "yellow"
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
    if line := collocation_line(app):
        text.append(f"\n{line}")
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
    if app.missing_standbys:
        text.append(f", {app.missing_standbys} lack a standby", "yellow")
    if app.unknown_load:
        text.append(f", {app.unknown_load:.1%} of the load is unknown", "yellow")
    return text


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
    color = "yellow" if app.n_minus_1_pct > 100.0 else ""
    return Text(f"\nN-1: {app.n_minus_1_pct:.0f} %{at}{lost}{bound}{following}", color)


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
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name, right in (
        ("worker", False),
        ("host", False),
        *([("app", False)] if several else []),
        ("used %", True),
        ("load %", True),
        ("demand %", True),
        ("backlog", True),
        ("memory", True),
        ("cores", True),
        ("key groups", True),
        ("", False),
    ):
        table.add_column(name.replace(" ", "\n"), justify="right" if right else "left", overflow="fold")
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
