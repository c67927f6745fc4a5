"""What an operator's command works on: the cluster that it names, and what a controller would know of it now."""

import time
from dataclasses import dataclass

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider.known import Known
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observing.view import AppView, NotReady
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.events import read_events
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.loop.preview import informed, read_cluster_state
from trimtab_controller.seen import CALM
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.names import Topics

KEPT_S = 30 * 86_400.0
"""How far back events are kept."""


class CommandError(Exception):
    """The command cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that a command is about."""

    configuration: Configuration
    connection: Connection
    topics: Topics


def read_decider(target: Target) -> tuple[Decider, float]:
    """A decider that knows what a controller would know now, and the time (epoch seconds).  Raises CommandError."""
    now, configuration = time.time(), target.configuration
    decider = informed(read_cluster_state(target.connection, configuration, now), configuration, now)
    missing = decider.known.not_ready
    if missing is not None:
        raise _no_whole_window(missing)
    return decider, now


def events_of(target: Target, now: float) -> tuple[Event, ...]:
    """All events; none where controllers of before 0.2.0 have made the topics."""
    try:
        return read_events(target.connection, target.topics, now - KEPT_S).events
    except ReadError:
        return ()


def view_of(known: Known, app: str | None, option: str) -> AppView:
    """The view of the app that `option` names, or of the only one.  Raises CommandError."""
    views = {name: view for name, view in known.views.items() if app in (None, name)}
    if len(views) != 1:
        raise CommandError(f"which app? {option} is one of {', '.join(known.views) or 'none, no app reports'}")
    view = next(iter(views.values()))
    if isinstance(view, NotReady):
        raise _no_whole_window(view)
    return view


def _no_whole_window(missing: NotReady) -> CommandError:
    """What is missing, and what to do about it."""
    runbook = f"`trimtab runbook {missing.reason}` says what to do"
    then = "ask again after the next window" if missing.reason in CALM else runbook
    return CommandError(f"no complete snapshot: {missing.reason}: {missing.detail}; {then}")
