"""An operator's request to restart the workers of an app, host by host.  All raise Refusal."""

from trimtab_controller.intents.change import (
    Asked,
    Change,
    Fault,
    Refusal,
    app_named,
    known_app,
    not_now,
    one,
    take_back,
)
from trimtab_protocol.messages.intents import MAX_WORKERS, RollingRestart, restart_key
from trimtab_protocol.messages.report import WorkerState


def rolling_restart(asked: Asked, app: str) -> Change:
    """Restart the workers of the app that run now."""
    name = known_app(asked, app)
    if restart_key(name) in asked.intents:
        text = f"{name} is being restarted already; `trimtab rolling-restart {name} --cancel` ends that"
        raise Refusal(Fault.CONFLICT, text)
    rows = [row for row in asked.nodes if row.app == name and row.state is WorkerState.RUNNING]
    if not 2 <= len(rows) <= MAX_WORKERS:
        text = f"{len(rows)} workers of {name} run: expected 2 to {MAX_WORKERS}, so that one can take over from another"
        raise Refusal(Fault.CONFLICT, text)
    if asked.mode_of(name) == "dry-run":
        raise Refusal(Fault.CONFLICT, f"the mode of {name} is dry-run: nothing of it moves, see [plans]")
    hosts = {row.host for row in rows}
    if len(hosts) == 1:
        text = f"all workers of {name} are on {next(iter(hosts))}: nobody could take over; expected two hosts or more"
        raise Refusal(Fault.CONFLICT, text)
    workers = tuple(sorted(row.worker for row in rows))
    intent = RollingRestart(app=name, workers=workers, by=asked.by, at=asked.at, reason=asked.reason)
    text = (
        f"{len(workers)} workers of {name} on {len(hosts)} hosts will be restarted, host by host: each is drained, "
        "stopped, and started by its agent; `trimtab status` shows how far it is"
    )
    return one(intent, text, not_now(asked, "it begins", "restarts"))


def cancel(asked: Asked, app: str) -> Change:
    """End a restart: what is stopped is started again, what is being drained keeps what it still has."""
    name = app_named(app)
    text = f"the restart of {name} is cancelled: workers that are stopped are started, no other one is touched"
    return take_back(asked, restart_key(name), text, f"{name} is not being restarted")
