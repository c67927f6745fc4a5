"""What the topics say about the cluster: takes messages in, and holds the newest state.  No I/O."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from confluent_kafka import Message

from trimtab_console.events import Events
from trimtab_console.flows import OperatorFlows, flows_of
from trimtab_console.history import History
from trimtab_controller.decider.events import IntentsChanged, SnapshotArrived
from trimtab_controller.execution.journal import JournalEntry
from trimtab_controller.execution.state import Round
from trimtab_controller.leadership.group import Member
from trimtab_controller.loop.inbox import MAX_INTENTS, Inbox
from trimtab_controller.seen import Seen, most_telling
from trimtab_protocol.console_documents import Point
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import Status, status_key
from trimtab_protocol.signing.keys import TrustedKeys

STATUS_KEYS = frozenset({status_key(acting=True), status_key(acting=False)})
MAX_ROUNDS = 100
"""Plans whose hand-overs are kept."""
COMPARED = frozenset({"controllers", "read", "fault"})
"""What is noted again and again, mostly unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The newest state; nothing in it changes.  `version` grows with each change.

    `snapshot` has no pairs, of which a fleet has millions: `flows` has their sums.
    `statuses` by record key; `rounds` by plan, as last journalled; `demand` = records of the last days by app;
    `controllers` None: the broker did not answer.
    `intent_keys` = keys of the intents in force, also of those that cannot be read; `intents_read` = offset of the last
    record of their topic, None before the first.
    `read` = whether the topics have been read to the ends that they had when the console started; `fault` = why Kafka
    cannot be read now.  `told` = events taken so far.
    """

    version: int = 0
    statuses: Mapping[bytes, Status] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    flows: Mapping[AppId, OperatorFlows] = field(default_factory=dict)
    placements: Mapping[AppId, Placement] = field(default_factory=dict)
    intents: tuple[Intent, ...] = ()
    intent_keys: frozenset[str] = frozenset()
    intents_read: int | None = None
    rounds: Mapping[str, Round] = field(default_factory=dict)
    controllers: Sequence[Member] | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    told: int = 0
    read: bool = False
    fault: str | None = None

    @property
    def asked(self) -> dict[str, Intent | None]:
        """The intents in force by key; None for one that cannot be read."""
        return {**dict.fromkeys(self.intent_keys), **{intent.key: intent for intent in self.intents}}

    def seen(self, now: float) -> Seen | None:
        """The status that tells most at this time; None: no controller has reported."""
        status = most_telling(self.statuses.values(), now)
        if status is None:
            return None
        return Seen(status=status, controllers=self.controllers, now=now, intents=self.asked if self.read else None)


class Watch:
    """One thread takes messages in; any number of others read `known`."""

    def __init__(self, topics: Topics, clock: Callable[[], float], *, trusted: TrustedKeys | None = None) -> None:
        self._topics = topics
        self._clock = clock
        self._trusted = trusted
        self._inbox = Inbox(topics, clock, trusted=trusted)
        self._history = History()
        self._events = Events(topics.cluster)
        self._rejected: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._known = Known()

    @property
    def known(self) -> Known:
        """The newest state."""
        return self._known

    def history(self, app: AppId) -> tuple[Point, ...]:
        """The points of an app, oldest first."""
        with self._lock:
            return self._history.of(app)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that are kept, in the order of their times."""
        with self._lock:
            return self._events.kept()

    def take(self, message: Message) -> None:
        """Note a message.  One that cannot be read is counted, and changes nothing else."""
        if message.topic() == self._topics.status:
            self._take_status(message)
        elif message.topic() == self._topics.events:
            with self._lock:
                is_new = self._events.take(message)
            if is_new:
                self._change(told=self._known.told + 1)
        else:
            self._take_event(message)

    def set_controllers(self, controllers: Sequence[Member] | None) -> None:
        """Note who is in the group of controllers."""
        self._change(controllers=controllers)

    def set_reading(self, *, read: bool, fault: str | None) -> None:
        """Note how reading goes."""
        self._change(read=read, fault=fault)

    def restart(self) -> None:
        """Forget what the topics said: they were made anew, and are read from their beginning."""
        with self._lock:
            self._history.restart()
            self._events = Events(self._topics.cluster)
        self._inbox = Inbox(self._topics, self._clock, trusted=self._trusted)
        self._change(
            statuses={}, snapshot=None, flows={}, placements={}, intents=(), intent_keys=frozenset(),
            intents_read=None, rounds={},
        )  # fmt: skip

    def _take_status(self, message: Message) -> None:
        key, statuses = message.key() or b"", dict(self._known.statuses)
        if message.value() is None:
            statuses.pop(key, None)
            self._change(statuses=MappingProxyType(statuses))
            return
        try:
            status = decoded(message.value(), Status)
        except BadMessage as error:
            self._rejected[f"{message.topic()}.{error.fault}"] += 1
            self._change(rejected=self._counts())
            return
        if key not in STATUS_KEYS or status.cluster != self._topics.cluster:
            return
        statuses[key] = status
        if status.acting or status_key(acting=True) not in statuses:
            with self._lock:
                self._history.note(status)
        self._change(statuses=MappingProxyType(statuses))

    def _take_event(self, message: Message) -> None:
        before = self._inbox.rejected.total()
        event = self._inbox.take(message)
        changed: dict[str, object] = {}
        match event:
            case SnapshotArrived(snapshot=snapshot):
                changed["snapshot"], changed["flows"] = replace(snapshot, pairs=()), flows_of(snapshot)
            case IntentsChanged(intents=intents):
                changed["intents"] = intents
            case Placement():
                changed["placements"] = MappingProxyType({**self._known.placements, event.app: event})
            case JournalEntry(execution=execution):
                rounds = {**self._known.rounds, **{row.plan: row for row in execution.rounds.values()}}
                newest = sorted(rounds.values(), key=lambda row: row.started_at)[-MAX_ROUNDS:]
                changed["rounds"] = MappingProxyType({row.plan: row for row in newest})
            case _:
                pass
        if message.topic() == self._topics.intents:
            changed |= self._intent_noted(message)
        if self._inbox.rejected.total() != before:
            changed["rejected"] = self._counts()
        if changed:
            self._change(**changed)

    def _intent_noted(self, message: Message) -> dict[str, object]:
        keys, key = self._known.intent_keys, (message.key() or b"").decode(errors="replace")
        if message.value() is None:
            keys -= {key}
        elif len(keys) < MAX_INTENTS:
            keys |= {key}
        return {"intent_keys": keys, "intents_read": message.offset()}

    def _counts(self) -> Mapping[str, int]:
        refused = {f"{topic}.{fault}": count for (topic, fault), count in self._inbox.rejected.items()}
        return MappingProxyType({**refused, **self._rejected})

    def _change(self, **changed: object) -> None:
        with self._lock:
            before = self._known
            if all(name in COMPARED and getattr(before, name) == value for name, value in changed.items()):
                return
            self._known = replace(before, version=before.version + 1, **changed)  # type: ignore[arg-type]
