"""What an operator's request becomes: intents to write with a text that says what follows, or a refusal.

The names in a request are checked once, where it comes in.  With `host_signatures = "enforce"`, what a host has not
signed is dropped.  Nothing can move to or from a host whose key is revoked, since nobody would hear that it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from trimtab_controller.seen import Seen, State
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.intents import Intent, TakenBack
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.status import NodeStatus, Status
from trimtab_protocol.wording import first_few, what_there_is

Record = tuple[str, Intent | TakenBack | None]
"""Key of an intent and the intent, or who takes it back; None takes away what is over."""


class RefusalKind(StrEnum):
    """Why a request is refused."""

    INVALID = "invalid"  # it makes no sense, whatever the cluster does
    UNKNOWN = "unknown"  # it names what does not report
    CONFLICT = "conflict"  # the cluster is not in a state for it


class ChangeRefused(Exception):
    """The request is not carried out; the text names what was found and what was expected."""

    def __init__(self, fault: RefusalKind, text: str) -> None:
        self.fault = fault
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks when (epoch seconds) and why, and what is known then.

    `status` None: no controller has reported.  `intents` in force now by key; None for one that cannot be read.
    """

    by: str
    at: float
    reason: str
    status: Status | None = None
    intents: Mapping[str, Intent | None] = field(default_factory=dict)

    @property
    def takes_back(self) -> TakenBack:
        """The word that an intent is not wanted any longer."""
        return TakenBack(by=self.by, at=self.at, reason=self.reason)

    @property
    def seen(self) -> Seen | None:
        """The status as it is seen now; None if no controller has reported."""
        if self.status is None:
            return None
        return Seen(status=self.status, controllers=None, now=self.at, intents=self.intents)

    @property
    def state(self) -> State | None:
        """The state of the controller; None if none has reported."""
        return None if self.seen is None else self.seen.state

    @property
    def nodes(self) -> tuple[NodeStatus, ...]:
        """The workers that are known."""
        return tuple(self.status.nodes) if self.status else ()

    def mode_of(self, app: AppId) -> str | None:
        """What becomes of the plans of an app: dry-run, approve or act; None if it is not known."""
        rows = self.status.apps if self.status else ()
        return next((row.mode for row in rows if row.app == app), None)

    @property
    def apps(self) -> tuple[AppId, ...]:
        """The apps that are known."""
        return tuple(row.app for row in self.status.apps) if self.status else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The records to write, in this order; `text` = what follows, `caveats` = why it does not at once or in full.

    `key` = the intent that it is about.  No records: there is nothing to do.
    """

    key: str
    records: tuple[Record, ...]
    text: str
    caveats: tuple[str, ...] = ()


def one(intent: Intent, text: str, caveats: tuple[str, ...] = ()) -> Change:
    """A change that writes this intent."""
    return several((intent,), text, caveats)


def several(intents: Sequence[Intent], text: str, caveats: tuple[str, ...] = ()) -> Change:
    """A change that writes these intents, at least one."""
    return Change(key=intents[0].key, records=tuple((each.key, each) for each in intents), text=text, caveats=caveats)


def take_back(asked: Asked, key: str, text: str, idle: str) -> Change:
    """Revoke the intent with this key; `idle` is said if there is none."""
    if key not in asked.intents:
        return Change(key=key, records=(), text=f"nothing to do: {idle}")
    return Change(key=key, records=((key, asked.takes_back),), text=text)


def without_leader(asked: Asked, what: str) -> tuple[str, ...]:
    """That no controller hears of it now; `what` happens when one leads."""
    return not_now(asked, what, "") if asked.state in (None, State.SILENT) else ()


def not_now(asked: Asked, what: str, does: str) -> tuple[str, ...]:
    """Why the controller does not begin at once; `what` begins then, and a controller on hold `does` nothing."""
    why = {
        None: f"no controller has reported yet: {what} when one leads",
        State.SILENT: f"but no controller is running: {what} when one leads again, see `trimtab status`",
        State.HOLD: f"but the controller is on hold and {does} nothing: `trimtab status` shows why, and how to end it",
        State.PAUSED: f"but the controller is paused: {what} after `trimtab resume`",
        State.DRY_RUN: "but the controller is a dry run: it only logs what it would do",
    }
    return (why[asked.state],) if asked.state in why else ()


def unseen(asked: Asked) -> str | None:
    """Why it is not known which workers there are; None if it is."""
    if asked.status is None:
        return "no controller has reported yet"
    if asked.status.window_end is None and not asked.nodes:
        return "no window has come since this controller leads"
    return None


def check_seen(asked: Asked) -> None:
    """Raises ChangeRefused while it is not known which workers there are."""
    if (why := unseen(asked)) is not None:
        told = "ask again after the next window, see `trimtab status`"
        raise ChangeRefused(RefusalKind.CONFLICT, f"which workers run is not known: {why}: {told}")


def check_reports(asked: Asked, app: AppId) -> None:
    """Raises ChangeRefused if apps report, but not this one."""
    if asked.apps and app not in asked.apps:
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no app {app!r} reports; {what_there_is(asked.apps)}")


# --- names, which raise ChangeRefused ---------------------------------------------------------------------------------


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


# --- hosts whose word does not count ----------------------------------------------------------------------------------


STOP_THERE = "stop it on the host itself, and others take over"
"""What to do with a worker of which the controller hears nothing."""


def is_revoked(asked: Asked, host: HostId) -> bool:
    """Whether the key of the host is revoked, and what it says is dropped for that."""
    found = asked.status.signatures if asked.status else None
    return found is not None and found.enforced and host in found.revoked


def check_heard(asked: Asked, workers: Iterable[WorkerId], instead: str = "") -> None:
    """Raises ChangeRefused if one of these workers is on a host whose key is revoked.

    `instead` = what else could be done.
    """
    for worker, host in revoked_of(asked, workers).items():
        text = f"the key of {host} is revoked, so what its agent says of {worker} is dropped"
        enroll = f"`trimtab keys enroll {host}`"
        then = f"{instead}, or {enroll}" if instead else f"{enroll} gives it a new key"
        raise ChangeRefused(RefusalKind.CONFLICT, f"{text}, and nothing can move to or from there; {then}")


def revoked_of(asked: Asked, workers: Iterable[WorkerId]) -> dict[WorkerId, HostId]:
    """Those of the workers that are on a host whose key is revoked, each with the host."""
    wanted = set(workers)
    hosts = {row.worker: row.host for row in asked.nodes if row.worker in wanted}
    return {worker: host for worker, host in sorted(hosts.items()) if is_revoked(asked, host)}


def left_out(revoked: dict[WorkerId, HostId]) -> tuple[str, ...]:
    """What is said of workers that are left out, one line for each host."""
    hosts = dict.fromkeys(revoked.values())
    return tuple(f"but not {first_few(_on(revoked, host))}: the key of {host} is revoked" for host in hosts)


def _on(revoked: dict[WorkerId, HostId], host: HostId) -> list[WorkerId]:
    return [worker for worker, where in revoked.items() if where == host]


def told_of_dropped(asked: Asked) -> str:
    """After a name that does not report: for which hosts what is said is dropped, if for any."""
    found = asked.status.signatures if asked.status else None
    if asked.status is None or found is None or not found.enforced:
        return ""
    heard = {row.host for row in asked.status.hosts} | {row.host for row in asked.nodes}
    hosts = {**found.doubted, **dict.fromkeys(found.revoked, "revoked")}
    dropped = [f"{host} ({why})" for host, why in sorted(hosts.items()) if host not in heard]
    return f"; what is said for these hosts is dropped: {first_few(dropped)}" if dropped else ""
