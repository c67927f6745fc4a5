"""What a controller finds when it starts: where its predecessor stood, what operators want, the acks since then."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Message, TopicPartition

from trimtab_controller.decider.machine import IntentsChanged
from trimtab_controller.execution.journal import JournalEntry, decode_entry
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.inbox import Inbox
from trimtab_controller.kafka.reader import Reading, at_offsets, drain, reading, starts
from trimtab_models.messages.decode import BadMessage
from trimtab_models.messages.names import AppId, Topics
from trimtab_models.messages.placement import Placement, decode_placement
from trimtab_models.messages.status import Status, decode_status, status_key
from trimtab_models.signing.envelope import headers_in, signatures_in

log = logging.getLogger(__name__)


class JournalError(Exception):
    """Journal or placement cannot be read: going on without them could give a key group two owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`execution` is the predecessor's; `acks` were not acted on yet, from `acks_read` on; read on at `positions`.

    `signatures` are those of the placements in `execution`.
    """

    execution: Execution
    signatures: Mapping[AppId, tuple[bytes, ...]]
    intents: IntentsChanged
    acks: tuple[Message, ...]
    acks_read: Mapping[int, int]
    status: Status | None
    positions: tuple[TopicPartition, ...]


def recover(connection: Connection, topics: Topics, inbox: Inbox, *, acting: bool) -> Found:
    """Read what is there; when not acting, `positions` also follow journal and placements.

    Raises JournalError, ReadError, KafkaException.
    """
    compacted = (topics.journal, topics.placement, topics.intents, topics.status)
    with reading(connection, "recovery") as consumer:
        found = drain(consumer, starts(consumer, compacted))
        entry = _journal(found, topics)
        later = drain(consumer, at_offsets(consumer, topics.acks, entry.acks_read))
    positions = [*found.positions(topics.intents), *later.positions(topics.acks)]
    if not acting:
        positions += [*found.positions(topics.journal), *found.positions(topics.placement)]
    placements = _placements(found, topics, inbox)
    return Found(
        execution=_execution(entry, [placement for placement, _ in placements]),
        signatures={placement.app: signatures for placement, signatures in placements},
        intents=_intents(found, topics, inbox),
        acks=tuple(later.messages),
        acks_read=entry.acks_read,
        status=_status(found, topics, acting=acting),
        positions=tuple(positions),
    )


def _journal(found: Reading, topics: Topics) -> JournalEntry:
    for message in found.latest(topics.journal):
        try:
            return decode_entry(message.value())
        except BadMessage as error:
            raise JournalError(f"{topics.journal} at offset {message.offset()}: {error}") from error
    return JournalEntry(execution=Execution(generation=0))


def _placements(found: Reading, topics: Topics, inbox: Inbox) -> list[tuple[Placement, tuple[bytes, ...]]]:
    """The placements with their signatures; what no trusted key vouches for is as if it were not there."""
    placements = []
    for message in found.latest(topics.placement, inbox.vouches):
        try:
            placements.append((decode_placement(message.value()), signatures_in(headers_in(message))))
        except BadMessage as error:
            raise JournalError(f"{topics.placement} at offset {message.offset()}: {error}") from error
    return placements


def _execution(entry: JournalEntry, placements: list[Placement]) -> Execution:
    execution = replace(entry.execution, placements={placement.app: placement for placement in placements})
    if execution.busy and execution.round is not None and execution.round.app not in execution.placements:
        raise JournalError(
            f"a plan for app {execution.round.app} is in flight, but there is no placement of it that can be trusted"
        )
    return execution


def _intents(found: Reading, topics: Topics, inbox: Inbox) -> IntentsChanged:
    present = IntentsChanged(intents=())
    for message in found.latest(topics.intents):
        event = inbox.take(message)
        present = event if isinstance(event, IntentsChanged) else present
    return present


def _status(found: Reading, topics: Topics, *, acting: bool) -> Status | None:
    for message in found.latest(topics.status):
        if message.key() == status_key(acting=acting):
            try:
                return decode_status(message.value())
            except BadMessage as error:
                log.warning("the status of the predecessor cannot be read, history begins anew: %s", error)
    return None


def taken_over(execution: Execution) -> Execution:
    """The state under the next leader generation, higher than any that was ever published."""
    published = [placement.epoch.generation for placement in execution.placements.values()]
    return replace(execution, generation=max([execution.generation, *published]) + 1)
