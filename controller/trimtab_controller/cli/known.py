"""What an operator's command works on: the cluster that it names, and what a controller would know of it now."""

from dataclasses import dataclass

from trimtab_controller.configuration import Configuration
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.events import read_events
from trimtab_controller.kafka.reader import ReadError
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


def events_of(target: Target, now: float) -> tuple[Event, ...]:
    """All events; none where controllers of before 0.2.0 have made the topics."""
    try:
        return read_events(target.connection, target.topics, now - KEPT_S).events
    except ReadError:
        return ()
