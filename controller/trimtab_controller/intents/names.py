"""The names in a request, checked once, where it comes in.  All raise Refusal."""

from typing import NewType

from trimtab_controller.intents.change import ChangeRefused, RefusalKind
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

ZONE = "zone:"
"""Before the name of a zone, so that it is told from a worker and a host: no name has a colon."""

Node = NewType("Node", str)
"""A worker, a host, or `zone:NAME`."""


def worker_named(text: str) -> WorkerId:
    """The worker's name."""
    return WorkerId(_name(text, "a worker's name"))


def app_named(text: str) -> AppId:
    """The app's id."""
    return AppId(_name(text, "an app's id"))


def host_named(text: str) -> HostId:
    """The host's name."""
    return HostId(_name(text, "a host's name"))


def node_named(text: str) -> Node:
    """The name of a worker, of a host, or of a zone after `zone:`."""
    if text.startswith(ZONE):
        _name(text.removeprefix(ZONE), "the name of a zone")
        return Node(text)
    return Node(_name(text, "a worker's name"))


def _name(text: str, expected: str) -> str:
    if not NAME_PATTERN.fullmatch(text):
        raise ChangeRefused(RefusalKind.INVALID, f"found {text[:200]!r}, expected {expected}")
    return text
