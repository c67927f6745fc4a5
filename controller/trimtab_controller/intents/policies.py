"""What each action becomes: from the fields of a request to the change that its policy decides.

A wrong name is refused before the policy is asked, so that nobody waits for a broker.  All raise ChangeRefused.

Policies that need the decider are imported when they are asked for: `trimtab pause` does not wait until it is there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from trimtab_controller.intents import actions
from trimtab_controller.intents.change import (
    Change,
    ChangeRefused,
    RefusalKind,
    app_named,
    host_named,
    node_named,
    worker_named,
)
from trimtab_protocol.actions import LONGEST_MAINTENANCE_S
from trimtab_protocol.messages.codec import converted
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.rules import Rule

Decide = partial[Change]
"""From `Asked`, and `looked=` if the action looks, to the change."""


def _forget(app: str | None, worker: str | None) -> Decide:
    if app is not None:
        return partial(actions.forget_app, app=app_named(app))
    assert worker is not None
    return partial(actions.forget_worker, worker=worker_named(worker))


def _stop(app: str | None, *, pause: bool) -> Decide:
    return partial(actions.stop, app=None if app is None else app_named(app), with_pause=pause)


def _scale(app: str, workers: int | None) -> Decide:
    if workers is None:
        return partial(actions.scale_auto, app=app_named(app))
    return partial(actions.scale, app=app_named(app), workers=workers)


def _rolling_restart(app: str, *, cancel: bool) -> Decide:
    if cancel:
        return partial(actions.cancel_restart, app=app_named(app))
    return partial(_plans().rolling_restart, app=app_named(app))


def _maintenance(host: str, for_s: float | None) -> Decide:
    known = host_named(host)
    if for_s is None:
        return partial(actions.end_maintenance, host=known)
    if not 0.0 < for_s <= LONGEST_MAINTENANCE_S:
        text = f"found {for_s:g} s, expected more than 0 s, and at most {LONGEST_MAINTENANCE_S:g} s"
        raise ChangeRefused(RefusalKind.INVALID, text)
    return partial(actions.maintenance, host=known, for_s=for_s)


def _plans() -> ModuleType:
    from trimtab_controller.intents import plans

    return plans


def _rules() -> ModuleType:
    from trimtab_controller.intents import rules

    return rules


def _move(key_groups: Sequence[str], worker: str) -> Decide:
    return partial(_plans().move, moves=_plans().placings(key_groups, worker))


def _add_rule(**given: Any) -> Decide:
    found = {name: value for name, value in given.items() if value is not None}
    try:
        return partial(_rules().add, rule=converted({**found, "reason": "that of the request"}, Rule))
    except BadMessage as error:
        raise ChangeRefused(RefusalKind.INVALID, str(error)) from error


POLICIES: Mapping[str, Callable[..., Decide]] = {
    "drain": lambda worker: partial(actions.drain, node=node_named(worker)),
    "undrain": lambda worker: partial(actions.undrain, node=node_named(worker)),
    "forget": _forget,
    "pause": lambda: partial(actions.pause),
    "stop": _stop,
    "resume": lambda: partial(actions.resume),
    "accept-journal": lambda hold: partial(actions.accept_journal, expected=hold),
    "approve": lambda plan: partial(_plans().approve, plan=plan),
    "reject": lambda plan: partial(_plans().reject, plan=plan),
    "move": _move,
    "undo": lambda plan, partly: partial(_plans().undo, plan=plan, partly=partly),
    "scale": _scale,
    "rolling-restart": _rolling_restart,
    "maintenance": _maintenance,
    "add-rule": _add_rule,
    "remove-rule": lambda name: partial(_rules().remove, name=name),
}
"""Action -> what it becomes with the fields of a request."""
BLIND = frozenset({actions.pause, actions.scale_auto, actions.cancel_restart})
"""What is decided also where the status cannot be read."""
