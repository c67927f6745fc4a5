"""Reads what a starting controller needs: its predecessor's state, the operators' intents, and the acks since then."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, Message, TopicPartition

from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.memory.forecasts import (
    KEY_PREFIX,
    DemandRecord,
    Forecasts,
    series_of,
)
from trimtab_controller.decider.memory.remote_costs import Recalled
from trimtab_controller.decider.values.settings import ForecastSettings
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import Flaw, Hold, JournalEntry, inherit, read_record
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.placements import PublishedPlacements
from trimtab_controller.kafka.reader import Reading, at_offsets, drain, reading, starts
from trimtab_controller.loop.inbox import ACKS_AT_ONCE, MAX_INTENTS, Inbox
from trimtab_models.albic.fit import CostFit, TupleCost, Unknown
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Command
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.intents import TakenBack
from trimtab_protocol.messages.names import NO_EPOCH, AppId, Epoch, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import RemoteCostStatus, Status, status_key
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import KeyId

log = logging.getLogger(__name__)

YEAR_2026_S = 1_767_225_600.0
"""Its begin, in epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredState:
    """The state found on the topics.

    `execution` is the predecessor's.  `acks` are the unprocessed ones, from the offsets `acks_read` on.  Continue
    reading at `positions`.  `status` = that of the predecessor in the same mode, `acted` = of the acting one.
    `placements` are all that were found, revoked ones included, with their `signers`.  On
    `hold` the execution has only the readable placements and the newest epoch that was used.  `demand` = the journal's
    records of the demand of apps.
    """

    execution: Execution
    placements: tuple[Placement, ...]
    signers: Mapping[AppId, frozenset[KeyId | None]]
    intents: IntentsChanged
    acks: tuple[Message, ...]
    acks_read: Mapping[int, int]
    status: Status | None
    positions: tuple[TopicPartition, ...]
    hold: Hold | None = None
    acted: Status | None = None
    demand: tuple[Message, ...] = ()


def recover(connection: Connection, topics: Topics, inbox: Inbox, *, acting: bool) -> RecoveredState:
    """Read the topics.  When not acting, `positions` also include journal and placements.

    Raises ReadError, KafkaException.
    """
    checks = inbox.checking is not HostChecking.OFF
    compacted = (topics.journal, topics.placement, topics.intents, topics.status, *([topics.keys] if checks else []))
    with reading(connection, "recovery") as consumer:
        found = drain(consumer, starts(consumer, compacted))
        inbox.take_keys(message for message in found.messages if message.topic() == topics.keys)
        published = _published(found, topics, inbox)
        placements = published.newest()
        status = _status(found, topics)
        entry = _inherited(found, topics, inbox, published, status)
        hold = None
        if isinstance(entry, Hold):
            hold = replace(entry, newest=max(entry.newest, _last_commanded(consumer, topics, inbox)))
            entry = JournalEntry(execution=Execution(generation=hold.newest.generation, number=hold.newest.number))
        acks = at_offsets(consumer, topics.acks, entry.acks_read)
        asked = entry.execution.hosts
        inbox.know(asked)
        keys = {host.encode() for host in asked}
        later = drain(consumer, acks, keys=keys, most_per_key=ACKS_AT_ONCE)  # the inbox would refuse more
    positions = [*found.positions(topics.intents), *later.positions(topics.acks), *found.positions(topics.keys)]
    if not acting:
        positions += [*found.positions(topics.journal), *found.positions(topics.placement)]
    return RecoveredState(
        execution=replace(
            entry.execution,
            placements={placement.app: placement for placement in placements if not placement.is_taken_back},
        ),
        placements=tuple(placements),
        signers={placement.app: published.signers(placement) for placement in placements},
        intents=_intents(found, topics, inbox),
        acks=tuple(later.messages),
        acks_read=entry.acks_read,
        status=status.get(status_key(acting=acting)),
        acted=status.get(status_key(acting=True)),
        demand=tuple(message for message in found.latest(topics.journal) if message.key() != JOURNAL_KEY),
        positions=tuple(positions),
        hold=hold,
    )


def _inherited(
    found: Reading,
    topics: Topics,
    inbox: Inbox,
    placements: PublishedPlacements,
    status: Mapping[bytes, Status],
) -> JournalEntry | Hold:
    """The predecessor's last journal entry, if it and the placements that it refers to can be trusted."""
    acted = status.get(status_key(acting=True))
    published = max(acted.epoch if acted else NO_EPOCH, placements.epoch)
    records = [
        read_record(message.offset(), message.value())
        for message in found.messages
        if message.topic() == topics.journal and message.key() == JOURNAL_KEY
    ]
    for record in records[:-1]:
        if isinstance(record.found, BadMessage):  # superseded by a later entry, but no controller writes such a record
            inbox.reject(topics.journal, record.found)
    entry = inherit(records, published)
    if isinstance(entry, Hold):
        return entry
    placed = {placement.app for placement in placements.newest() if not placement.is_taken_back}
    homeless = next((row for row in entry.execution.in_flight if row.app not in placed), None)
    flawed = placements.flaw
    if flawed is None and homeless is not None:
        flawed = f"plan {homeless.plan} for app {homeless.app} is in flight, but no placement of it can be trusted"
    return entry if flawed is None else Hold(flaw=Flaw.PLACEMENT, detail=flawed, newest=entry.execution.epoch)


def _last_commanded(consumer: Consumer, topics: Topics, inbox: Inbox) -> Epoch:
    """The newest epoch of all commands still on the topic; agents refuse older ones."""
    newest = NO_EPOCH
    for message in drain(consumer, starts(consumer, [topics.commands])).messages:
        if inbox.vouches(message):
            try:
                newest = max(newest, decoded(message.value(), Command).epoch)
            except BadMessage as error:
                log.warning("ignoring a command that cannot be read: %s", error)
    return newest


def _published(found: Reading, topics: Topics, inbox: Inbox) -> PublishedPlacements:
    """The placements on the topic.  Records without a trusted signature are ignored.

    A signed record may be a replay of an old one, so what has the highest epoch counts.
    """
    for message in found.messages:
        if message.topic() == topics.placement:
            inbox.take_placement(message)
    return inbox.placements


def _intents(found: Reading, topics: Topics, inbox: Inbox) -> IntentsChanged:
    """What is in force, and who has taken back what the topic still has the end of."""
    last = {message.key(): message for message in found.messages if message.topic() == topics.intents}
    taken_back: dict[str, TakenBack] = {}
    intents = IntentsChanged(intents=())
    for message in last.values():
        event = inbox.take(message)
        if isinstance(event, IntentsChanged):
            intents = event
            taken_back |= event.taken_back if len(taken_back) < MAX_INTENTS else {}
    return replace(intents, taken_back=taken_back)


def _status(found: Reading, topics: Topics) -> dict[bytes, Status]:
    """The last status of each controller, by key."""
    told = {}
    for message in found.latest(topics.status):
        try:
            told[message.key()] = decoded(message.value(), Status)
        except BadMessage as error:
            log.warning("cannot read the predecessor's status, so its decisions and rounds are not shown: %s", error)
    return told


def taken_over(execution: Execution, known: int = 0) -> Execution:
    """The state under the next leader generation, which is higher than all published ones, and than one `known`."""
    published = [placement.epoch.generation for placement in execution.placements.values()]
    return replace(execution, generation=max([execution.generation, known, *published]) + 1)


def generation_known(snapshot: Snapshot, now: float) -> int:
    """The newest leader generation that a worker or its agent knows; 0 = none.

    A host cannot raise it for ever: more than one leader a minute since 2026 is not believed.
    """
    known = (row.epoch.generation for row in snapshot.nodes if row.epoch is not None)
    return max((each for each in known if each <= (now - YEAR_2026_S) / 60.0), default=0)


def recalled_demand(messages: Iterable[Message], settings: ForecastSettings) -> Forecasts:
    """What a predecessor has recorded, from the records of the journal; what cannot be read is unknown."""
    forecasts = Forecasts(settings=settings)
    if not forecasts.is_on:
        return forecasts
    newest: dict[bytes, bytes | None] = {}
    for message in messages:
        if (key := message.key() or b"").startswith(KEY_PREFIX):
            newest[key] = message.value()
    demand: list[DemandRecord] = []
    for key, value in newest.items():
        if value is None:
            continue
        try:
            demand.append(decoded(value, DemandRecord))
        except BadMessage as error:
            log.warning("cannot read the record %r of demand, so it counts as unknown: %s", key, error)
    return Forecasts(settings=settings, series=series_of(demand))


def recalled_costs(status: Status | None) -> Recalled:
    """What tuples between workers cost, as the status says."""
    apps = status.apps if status is not None else ()
    return {
        (app.app, row.operator): CostFit(sending=_cost(row.sending), receiving=_cost(row.receiving))
        for app in apps
        for row in (app.remote_costs.operators if app.remote_costs else ())
    }


def _cost(row: RemoteCostStatus) -> TupleCost | Unknown:
    if row.value is None or row.error is None or row.freedom is None or row.freedom <= 0.0:
        return Unknown.FEW
    return TupleCost(value=row.value, error=row.error, freedom=row.freedom)
