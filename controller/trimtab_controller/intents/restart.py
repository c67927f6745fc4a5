"""An operator's request to restart the workers of an app, host by host.  All raise Refusal."""

from trimtab_controller.decider.policies.rolling import ON_THE_WAY
from trimtab_controller.decider.window.fixed import is_of_differing
from trimtab_controller.intents.actions import frozen_in
from trimtab_controller.intents.change import (
    Asked,
    Change,
    Fault,
    Refusal,
    check_reports,
    check_seen,
    not_now,
    one,
)
from trimtab_controller.intents.revoked import left_out, revoked_of
from trimtab_protocol.messages.intents import MAX_WORKERS, RollingRestart, drain_key, restart_key
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.wording import first_few

OTHER_TABLES = (
    "if the new version has other topics, tables or operators, the hosts after the first are not drained: "
    "their workers are restarted one at a time"
)
WITHOUT_DRAIN = "without a drain, one worker at a time, since nothing may move"


def rolling_restart(asked: Asked, app: AppId) -> Change:
    """Restart the workers of the app that run now."""
    check_reports(asked, app)
    check_seen(asked)
    if restart_key(app) in asked.intents:
        text = f"{app} is being restarted already; `trimtab rolling-restart {app} --cancel` ends that"
        raise Refusal(Fault.CONFLICT, text)
    revoked = revoked_of(asked, (row.worker for row in asked.nodes if row.app == app))
    ours = [row for row in asked.nodes if row.app == app and row.worker not in revoked]
    running = [row for row in ours if row.state is WorkerState.RUNNING]
    drained = sorted(row.worker for row in running if drain_key(row.worker) in asked.intents)
    rows = [row for row in running if row.startable and row.worker not in drained]
    if running and not any(row.startable for row in running):
        text = f"no agent can start a worker of {app}: expected `app` and `command` of the workers in agent.toml"
        raise Refusal(Fault.CONFLICT, text)
    late = sorted(row.worker for row in ours if row.state in ON_THE_WAY and row.startable)
    if not 2 <= len(rows) <= MAX_WORKERS:
        text = f"workers of {app} that run and can be restarted: {len(rows)}, expected 2 to {MAX_WORKERS}"
        later = f"; {first_few(late)} do not run yet, ask again when they do" if late else ""
        out = "".join(f"; {each}" for each in left_out(revoked))
        raise Refusal(Fault.CONFLICT, f"{text}, so that one can take over from another{later}{out}")
    if asked.mode_of(app) == "dry-run":
        raise Refusal(Fault.CONFLICT, f"the mode of {app} is dry-run: nothing of it moves, see [plans]")
    hosts = {row.host for row in rows}
    if len(hosts) == 1:
        text = f"all workers of {app} are on {next(iter(hosts))}: nobody could take over; expected two hosts or more"
        raise Refusal(Fault.CONFLICT, text)
    workers = tuple(sorted(row.worker for row in rows))
    intent = RollingRestart(app=app, workers=workers, by=asked.by, at=asked.at, reason=asked.reason)
    text = (
        f"{len(workers)} workers of {app} on {len(hosts)} hosts will be restarted, host by host: each is drained, "
        f"stopped, and started by its agent; {OTHER_TABLES}; `trimtab status` shows how far it is"
    )
    left = sorted(row.worker for row in running if not row.startable)
    told = (f"but {first_few(left)} stay as they are: their agents cannot start them",) if left else ()
    off = (f"but without {first_few(drained)}: operators drain them",) if drained else ()
    missed = (f"but without {first_few(late)}: they do not run yet",) if late else ()
    differ = tuple(f"but {WITHOUT_DRAIN}: {row.reason}" for row in running if is_of_differing(row))[:1]
    notes = (
        *not_now(asked, "it begins", "restarts"),
        *differ,
        *left_out(revoked),
        *told,
        *off,
        *missed,
        *frozen_in(asked, {app}),
    )
    return one(intent, text, notes)
