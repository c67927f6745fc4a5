"""Answers requests of operators to forget an app or a worker.  Pure."""

from collections.abc import Iterable
from dataclasses import replace

from trimtab_controller.decider.decision import Forgotten, Refused
from trimtab_controller.decider.observing.view import NotReady
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.intents import ForgetApp, ForgetWorker, Intent, drain_key
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import counted, first_few


def to_forget(
    intents: Iterable[Intent], execution: Execution, snapshot: Snapshot | None, not_ready: NotReady | None
) -> Forgotten | Refused | None:
    """The answer to the first intent to forget; `not_ready` = why the last `snapshot` cannot be used.

    Forgetting moves nothing, so a pause does not forbid it.  Nor do lost hosts: it may be what ends that state.  An app
    waits for the end of its plan in flight, a worker for the end of all plans; both wait while the snapshot is too old
    to show what runs.
    """
    stale = not_ready is not None and not_ready.reason is SkipReason.STALE_SNAPSHOT
    if stale or snapshot is None:
        return None
    wishes = (intent for intent in intents if isinstance(intent, ForgetApp | ForgetWorker))
    wish = next((wish for wish in wishes if not _busy(wish, execution)), None)
    if wish is None:
        return None
    running = [row for row in snapshot.nodes if row.state is not WorkerState.AWAY]
    if isinstance(wish, ForgetApp):
        what, found = f"app {wish.app}", [row for row in running if row.app == wish.app]
        placed = execution.placements.get(wish.app)
        count = sum(map(len, placed.owners.values())) if placed else 0
        detail = f"its placement of {counted(count, 'key group')} is revoked" if placed else "it had no placement"
        forgotten = Forgotten(what=what, answered=(wish.key,), detail=detail, app=wish.app)
    else:
        what, found = f"worker {wish.worker}", [row for row in running if row.worker == wish.worker]
        keys = (wish.key, drain_key(wish.worker))
        detail = "it is no longer awaited, started or drained"
        forgotten = Forgotten(what=what, answered=keys, detail=detail, worker=wish.worker)
    if found:
        names = first_few(f"{row.worker} on {row.host}" for row in found)
        return Refused(what="forget", detail=f"{what} still runs: {names}; stop it first", answered=(wish.key,))
    return replace(forgotten, detail=f"{detail}, asked for by {wish.by}: {wish.reason}")


def _busy(wish: ForgetApp | ForgetWorker, execution: Execution) -> bool:
    return execution.busy(wish.app) if isinstance(wish, ForgetApp) else bool(execution.in_flight)
