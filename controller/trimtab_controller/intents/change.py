"""What an operator's request becomes: intents to write with a text that says what follows, or a refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_controller.seen import Seen, State
from trimtab_protocol.messages.intents import Intent, TakenBack
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import NodeStatus, Status
from trimtab_protocol.wording import what_there_is

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
    """Raises Refusal while it is not known which workers there are."""
    if (why := unseen(asked)) is not None:
        told = "ask again after the next window, see `trimtab status`"
        raise ChangeRefused(RefusalKind.CONFLICT, f"which workers run is not known: {why}: {told}")


def check_reports(asked: Asked, app: AppId) -> None:
    """Raises Refusal if apps report, but not this one."""
    if asked.apps and app not in asked.apps:
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no app {app!r} reports; {what_there_is(asked.apps)}")
