"""The operators' actions, one function each: from a request and what is known to a change.  All raise ChangeRefused."""

from collections.abc import Collection
from dataclasses import replace

from trimtab_controller.intents.change import (
    STOP_THERE,
    ZONE,
    Asked,
    Change,
    ChangeRefused,
    Node,
    RefusalKind,
    check_heard,
    check_reports,
    check_seen,
    left_out,
    not_now,
    one,
    revoked_of,
    several,
    take_back,
    told_of_dropped,
    unseen,
    without_leader,
)
from trimtab_controller.seen import SILENT_AFTER_S
from trimtab_protocol.messages.intents import (
    MAX_WORKERS,
    PAUSE_KEY,
    AcceptJournal,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    MoveKeyGroups,
    Pause,
    RollingRestart,
    Scale,
    Stop,
    Undrain,
)
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.rules import RuleKind
from trimtab_protocol.messages.status import NodeStatus
from trimtab_protocol.wording import counted, first_few, time_span, what_there_is


def drain(asked: Asked, node: Node) -> Change:
    """Empty a worker that the controller knows, then stop it; or all workers of a host, or of `zone:NAME`."""
    if (zone := _zone_named(node)) is not None:
        return _drain_all(asked, node, _in_zone(asked, zone))
    name = WorkerId(node)
    known = [row.worker for row in asked.nodes]
    if name not in known and (members := _on_host(asked, name)):
        return _drain_all(asked, name, members)
    if known and name not in known:
        there = f"{what_there_is(known)}{told_of_dropped(asked)}"
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no worker or host {name!r} reports; {there}")
    check_heard(asked, [name], STOP_THERE)
    intent = Drain(worker=name, by=asked.by, at=asked.at, reason=asked.reason)
    text = (
        f"{name} will be drained as the budget of each round allows, then stopped; `trimtab undrain {name}` cancels it"
    )
    caveats = not_now(asked, "the drain starts", "moves")
    apps = {row.app for row in asked.nodes if row.worker == name and row.app is not None}
    told = (
        *_only_told(asked, name),
        *frozen_in(asked, apps),
        *_nowhere_to_go(asked, name, {name}),
        *_unsure(asked, name),
    )
    return one(intent, text, (*caveats, *told))


def _unsure(asked: Asked, name: WorkerId) -> tuple[str, ...]:
    """That the name may be wrong, or that of a host, and nobody can tell yet."""
    why = unseen(asked)
    told = f"but whether {name} is a worker is not known: {why}; a host is drained only after that"
    return () if why is None or asked.status is None else (told,)  # without a controller, the caveats say so


def _on_host(asked: Asked, host: str) -> list[WorkerId]:
    return sorted(row.worker for row in asked.nodes if row.host == host)


def _zone_named(node: Node) -> str | None:
    return node.removeprefix(ZONE) if node.startswith(ZONE) else None


def _in_zone(asked: Asked, zone: str) -> list[WorkerId]:
    """The workers on hosts of a zone.  Raises ChangeRefused."""
    check_seen(asked)
    rows = asked.status.hosts if asked.status else ()
    hosts = {row.host for row in rows if row.zone == zone}
    if not hosts:
        zones = sorted({row.zone for row in rows if row.zone is not None})
        known = what_there_is(zones) if zones else "no agent names one, see [host] in agent.toml"
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no host of zone {zone[:200]!r} reports; {known}")
    workers = sorted(row.worker for row in asked.nodes if row.host in hosts)
    if not workers:
        raise ChangeRefused(
            RefusalKind.UNKNOWN, f"no worker is on the hosts of zone {zone!r}: {first_few(sorted(hosts))}"
        )
    return workers


def _drain_all(asked: Asked, where: str, workers: list[WorkerId]) -> Change:
    """All workers of a host or a zone, also those that do not run: they are to stay off."""
    revoked = revoked_of(asked, workers)
    if not (heard := [worker for worker in workers if worker not in revoked]):
        check_heard(asked, workers, STOP_THERE)
    workers = heard
    drains = [Drain(worker=worker, by=asked.by, at=asked.at, reason=asked.reason) for worker in workers]
    text = (
        f"{counted(len(workers), 'worker')} of {where} will be drained as the budget of each round allows, then "
        f"stopped: {first_few(workers)}; `trimtab undrain {where}` cancels it"
    )
    leaving = set(workers)
    apps = {row.app for row in asked.nodes if row.worker in leaving and row.app is not None}
    caveats = (*not_now(asked, "the drain starts", "moves"), *frozen_in(asked, apps))
    told = (
        caveat for worker in workers for caveat in (*_only_told(asked, worker), *_nowhere_to_go(asked, worker, leaving))
    )
    return several(drains, text, tuple(dict.fromkeys((*left_out(revoked), *caveats, *told))))


def undrain(asked: Asked, node: Node) -> Change:
    """Cancel a drain, an operator's or the controller's own; or those of all workers of a host, or of `zone:NAME`."""
    if (zone := _zone_named(node)) is not None:
        if found := _undrain_all(asked, node, _in_zone(asked, zone)):
            return found
        return Change(key=node, records=(), text=f"nothing to do: no worker of {node} is being drained")
    name = WorkerId(node)
    key = Drain.key_of(name)
    is_worker = name in {row.worker for row in asked.nodes} or key in asked.intents
    if not is_worker and (found := _undrain_all(asked, name, _on_host(asked, name))):
        return found
    leaving = [app.size.leaving for app in asked.status.apps if app.size is not None] if asked.status else []
    if any(name in workers for workers in leaving) and key not in asked.intents:
        intent = Undrain(worker=name, by=asked.by, at=asked.at, reason=asked.reason)
        text = f"{name} stays: it takes key groups again; `trimtab scale` sets the size of an app for longer"
        return one(intent, text, without_leader(asked, "it happens"))
    text, idle = f"the drain of {name} is cancelled: it takes key groups again", f"{name} is not being drained"
    return take_back(asked, key, text, idle)


def _undrain_all(asked: Asked, where: str, workers: list[WorkerId]) -> Change | None:
    """Cancel the drains of these workers; None if there are none."""
    drained = [Drain.key_of(each) for each in workers if Drain.key_of(each) in asked.intents]
    if not drained:
        return None
    text = f"the drain of {counted(len(drained), 'worker')} of {where} is cancelled: key groups may go there again"
    return Change(key=drained[0], records=tuple((each, asked.takes_back) for each in drained), text=text)


def forget_app(asked: Asked, app: AppId) -> Change:
    """Drop an app that no longer runs."""
    _check_gone([row for row in _running(asked) if row.app == app], f"app {app}")
    intent = ForgetApp(app=app, by=asked.by, at=asked.at, reason=asked.reason)
    unknown = bool(asked.apps) and app not in asked.apps
    told = (f"but no app {app!r} is known; {what_there_is(asked.apps)}",) if unknown else ()
    return _forgotten(intent, f"app {app}", (*without_leader(asked, "it happens"), *told))


def forget_worker(asked: Asked, worker: WorkerId) -> Change:
    """Drop a worker that no longer runs."""
    _check_gone([row for row in _running(asked) if row.worker == worker], f"worker {worker}")
    intent = ForgetWorker(worker=worker, by=asked.by, at=asked.at, reason=asked.reason)
    return _forgotten(intent, f"worker {worker}", without_leader(asked, "it happens"))


def pause(asked: Asked) -> Change:
    """Start no new plan."""
    intent = Pause(by=asked.by, at=asked.at, reason=asked.reason)
    text = "paused: a plan in flight is finished, no new one starts until `trimtab resume`"
    return one(intent, text, without_leader(asked, "it is heard"))


def stop(asked: Asked, app: AppId | None, *, with_pause: bool = False) -> Change:
    """End the plans in flight of an app, or of all apps (None); `with_pause`: start no new one either.

    Moves that operators asked for and that wait are taken back, or they would begin as soon as the plan has ended.
    """
    if app is not None:
        check_reports(asked, app)
    stopping = Stop(app=app, by=asked.by, at=asked.at, reason=asked.reason)
    pausing = Pause(by=asked.by, at=asked.at, reason=asked.reason)
    plans = [row.plan for row in asked.status.plans_in_flight if app in (None, row.app)] if asked.status else []
    what = f"stopping plan {first_few(plans)}" if plans else "no plan was reported in flight; stopping any that is"
    then = (
        "no new one starts until `trimtab resume`" if with_pause else "new ones may follow, see `trimtab stop --pause`"
    )
    waiting = sorted(
        key for key, each in asked.intents.items() if isinstance(each, MoveKeyGroups) and app in (None, each.app)
    )
    back = f"; requests to move or undo that wait are taken back: {len(waiting)}" if waiting else ""
    return Change(
        key=stopping.key,
        records=(
            *((key, asked.takes_back) for key in waiting),
            *([(pausing.key, pausing)] if with_pause else []),
            (stopping.key, stopping),
        ),
        text=f"{what}: released key groups arrive, all others stay where they are{back}; {then}",
        caveats=without_leader(asked, "it happens"),
    )


def resume(asked: Asked) -> Change:
    """End a pause."""
    idle = "the controller is not paused; `trimtab resume --accept-journal` ends a hold"
    change = take_back(asked, PAUSE_KEY, "the controller decides again", idle)
    return replace(change, caveats=without_leader(asked, "it is heard")) if change.records else change


def accept_journal(asked: Asked, expected: str | None = None) -> Change:
    """End the hold that the status names: go on without the content of the journal.

    `expected` = the id of the hold that the operator has seen; None: whichever there is.
    """
    hold = asked.status.hold if asked.status else None
    if hold is None:
        raise ChangeRefused(RefusalKind.CONFLICT, "the controller is not on hold: there is nothing to accept")
    if expected not in (None, hold.id):
        raise ChangeRefused(RefusalKind.CONFLICT, f"found another hold, {hold.id}, expected {expected}: {hold.text}")
    intent = AcceptJournal(hold=hold.id, by=asked.by, at=asked.at, reason=asked.reason)
    text = f"accepted: {hold.text}; the controller rebuilds its state from the placement and the reports"
    return one(intent, text)


def scale(asked: Asked, app: AppId, workers: int) -> Change:
    """Set how many workers an app should have, whatever its demand is."""
    check_reports(asked, app)
    if not 1 <= workers <= MAX_WORKERS:
        raise ChangeRefused(
            RefusalKind.INVALID, f"found {workers}, expected a number of workers from 1 to {MAX_WORKERS}"
        )
    intent = Scale(app=app, workers=workers, by=asked.by, at=asked.at, reason=asked.reason)
    text = f"{app} will have {counted(workers, 'worker')}; `trimtab scale {app} auto` ends that"
    return one(intent, text, (*not_now(asked, "it happens", "changes"), *_out_of_reach(asked, app, workers)))


def scale_auto(asked: Asked, app: AppId) -> Change:
    """Let the size of an app follow its demand again."""
    text = f"the size of {app} follows its demand again, as [scaling] says"
    return take_back(asked, Scale.key_of(app), text, f"nobody has set the size of {app}")


def cancel_restart(asked: Asked, app: AppId) -> Change:
    """End a restart: what is stopped is started again, what is being drained keeps what it still has."""
    text = f"the restart of {app} is cancelled: workers that are stopped are started, no other one is touched"
    return take_back(asked, RollingRestart.key_of(app), text, f"{app} is not being restarted")


def _running(asked: Asked) -> list[NodeStatus]:
    """The workers that run, by a status that is not old."""
    if asked.status is None or asked.at - asked.status.at > SILENT_AFTER_S:
        return []
    return [row for row in asked.nodes if row.state is not WorkerState.AWAY]


def _check_gone(found: list[NodeStatus], what: str) -> None:
    if found:
        where = first_few(f"{row.worker} on {row.host}" for row in found)
        raise ChangeRefused(RefusalKind.CONFLICT, f"{what} still runs: {where}; stop it first")


def _forgotten(intent: ForgetApp | ForgetWorker, what: str, caveats: tuple[str, ...]) -> Change:
    text = f"{what} will be forgotten with the next window; `trimtab status` then lists it among the decisions"
    return one(intent, text, caveats)


def _only_told(asked: Asked, worker: WorkerId) -> tuple[str, ...]:
    app = next((row.app for row in asked.nodes if row.worker == worker), None)
    if app is None or asked.mode_of(app) != "dry-run":
        return ()
    return (f"but the mode of {app} is dry-run: nothing of it moves, see [plans] in controller.toml",)


def frozen_in(asked: Asked, apps: Collection[AppId]) -> tuple[str, ...]:
    """Which rules keep key groups of these apps where they are."""
    told = asked.status.rules or () if asked.status else ()
    rules = [each.rule for each in told if each.ignored is None and each.rule.kind is RuleKind.FREEZE]
    found = sorted({rule.name for rule in rules for app in apps if rule.holds(app, asked.at)})
    if not found:
        return ()
    by = f"rule {found[0]} (freeze) keeps" if len(found) == 1 else f"rules {first_few(found)} (freeze) keep"
    return (f"but {by} key groups: a worker that has one of them is not stopped",)


def _nowhere_to_go(asked: Asked, worker: WorkerId, leaving: Collection[WorkerId]) -> tuple[str, ...]:
    """Whether no other worker of the app could take over: none that is not `leaving` too."""
    app = next((row.app for row in asked.nodes if row.worker == worker), None)
    rows = [row for row in asked.nodes if row.app == app and row.worker not in leaving]
    others = [row for row in rows if not row.draining]
    if not asked.nodes or others:
        return ()
    return ("but no other worker could take its key groups: it keeps them until there is one",)


def _out_of_reach(asked: Asked, app: AppId, workers: int) -> tuple[str, ...]:
    """Whether too few workers can be started or stopped."""
    rows = asked.status.apps if asked.status else ()
    size = next((row.size for row in rows if row.app == app and row.size is not None), None)
    if asked.status is None or size is None or size.workers is None:
        return ()
    pool = sum(row.app == app for row in asked.status.pool) + len(size.leaving)
    if workers > size.workers + pool:
        return (f"but only {size.workers} run, and {pool} more can be started; `trimtab status` lists them",)
    stoppable = sum(row.app == app and row.startable for row in asked.nodes)
    if workers < size.workers - stoppable:
        told = "without a `hook` only workers leave that have `app` and `command` in agent.toml"
        return (f"but {size.workers} run, and {stoppable} of them can be stopped: {told}",)
    return ()


# --- maintenance of a host: its workers are drained and stay off until a time -----------------------------------------


def maintenance(asked: Asked, host: HostId, for_s: float) -> Change:
    """Drain all workers of the host and keep them off; after `for_s` seconds they are started again."""
    check_seen(asked)
    hosts = {row.host for row in asked.nodes}
    if host not in hosts:
        there = what_there_is(sorted(hosts))
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no host {host!r} reports; {there}{told_of_dropped(asked)}")
    until = asked.at + for_s
    here = sorted(row.worker for row in asked.nodes if row.host == host)
    check_heard(asked, here, STOP_THERE)
    kept = [each for each in here if _is_lasting(asked.intents.get(Drain.key_of(each)))]
    if not (workers := [each for each in here if each not in kept]):
        text = f"operators drain all workers of {host} without an end: they stay off anyway, see `trimtab undrain`"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    drains = [
        Drain(worker=each, by=asked.by, at=asked.at, reason=asked.reason, until=until, host=host) for each in workers
    ]
    text = (
        f"maintenance of {host} for {time_span(for_s)}: {counted(len(workers), 'worker')} will be drained as the "
        f"budget of each round allows, then stopped, and started again at its end: {first_few(workers)}; "
        f"`trimtab maintenance {host} --end` ends it earlier"
    )
    return several(drains, text, (*drain(asked, Node(host)).caveats, *_stay_off(kept)))


def _stay_off(kept: list[WorkerId]) -> tuple[str, ...]:
    return (f"but {first_few(kept)} stay off also after it: an operator drains them without an end",) if kept else ()


def _is_lasting(intent: Intent | None) -> bool:
    """Whether it is a drain without an end, which a maintenance must not give one."""
    return isinstance(intent, Drain) and intent.until is None


def end_maintenance(asked: Asked, host: HostId) -> Change:
    """End a maintenance: workers that were stopped are started.  The host need not report."""
    keys = [key for key, each in asked.intents.items() if isinstance(each, Drain) and each.host == host]
    if not keys:
        return undrain(asked, Node(host))
    again = f"{counted(len(keys), 'worker')} may run again"
    text = f"the maintenance of {host} ends: {again}; those that were stopped are started"
    return Change(key=keys[0], records=tuple((key, asked.takes_back) for key in keys), text=text)
