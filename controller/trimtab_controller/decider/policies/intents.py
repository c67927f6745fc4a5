"""What the decider owes the operators who sent intents, as far as that needs no plan."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trimtab_controller.decider.policies.proposals import answer_to
from trimtab_controller.decider.policies.rolling import restarted
from trimtab_controller.decider.values.decision import Decision, Forgotten, IntentRefused, MaintenanceEnded
from trimtab_controller.decider.values.plan_settings import PlanSettings
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.intents import Drain, ForgetApp, ForgetWorker, Intent
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import counted, first_few


def answer(
    now: float, intents: Sequence[Intent], execution: Execution, snapshot: Snapshot | None, plans: PlanSettings
) -> Decision | None:
    """The answer to what operators say of plans, as far as that needs no plan; the end of restarts that are done."""
    return (
        answer_to(now, intents, execution, plans)
        or restarted(intents, execution, snapshot)
        or maintenance_over(now, intents)
    )


def to_forget(
    intents: Iterable[Intent], execution: Execution, snapshot: Snapshot | None, not_ready: NotReady | None
) -> Forgotten | IntentRefused | None:
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
        keys = (wish.key, Drain.key_of(wish.worker))
        detail = "it is no longer awaited, started or drained"
        forgotten = Forgotten(what=what, answered=keys, detail=detail, worker=wish.worker)
    if found:
        names = first_few(f"{row.worker} on {row.host}" for row in found)
        return IntentRefused(what="forget", detail=f"{what} still runs: {names}; stop it first", answered=(wish.key,))
    return replace(forgotten, detail=f"{detail}, asked for by {wish.by}: {wish.reason}")


def _busy(wish: ForgetApp | ForgetWorker, execution: Execution) -> bool:
    return execution.busy(wish.app) if isinstance(wish, ForgetApp) else bool(execution.in_flight)


def maintenance_over(now: float, intents: Iterable[Intent]) -> MaintenanceEnded | None:
    """The end of the drains whose time has passed: workers that the controller stopped are started again."""
    over = [each for each in intents if isinstance(each, Drain) and each.until is not None and each.until <= now]
    if not over:
        return None
    hosts = sorted({each.host for each in over if each.host is not None})
    where = f"of {first_few(hosts)} " if hosts else ""
    workers = first_few(sorted(each.worker for each in over))
    detail = f"the maintenance {where}is over: {workers} may run again"
    return MaintenanceEnded(detail=detail, answered=tuple(each.key for each in over))
