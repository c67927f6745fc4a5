"""Turns the controller's publications into Kafka records."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trimtab_controller.execution.events import Publish
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import JournalEntry, encode_entry
from trimtab_controller.kafka.publisher import Record, headers_of
from trimtab_protocol.messages.commands import encode_command
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, Fault
from trimtab_protocol.messages.names import AppId, Topics
from trimtab_protocol.messages.placement import Placement, encode_placement
from trimtab_protocol.messages.status import Status, encode_status, status_key
from trimtab_protocol.signing.envelope import signatures_in
from trimtab_protocol.signing.keys import SigningKey

KEPT_CONCERNS = 100
"""Number of concerns kept in a status that is too large."""


def records_of(action: Publish, acks_read: Mapping[int, int], topics: Topics) -> list[Record]:
    """The records of one publication: journal entry, placements, commands, and tombstones of answered intents.

    `acks_read`: next offset of each partition of the acks topic; it becomes part of the journal entry.
    """
    entry = JournalEntry(execution=action.execution, acks_read=acks_read)
    return [
        Record(topic=topics.journal, key=JOURNAL_KEY, value=encode_entry(entry)),
        *(placement_record(placement, topics) for placement in action.placements),
        *(
            Record(topic=topics.commands, key=command.host.encode(), value=encode_command(command), signed=True)
            for command in action.commands
        ),
        *(Record(topic=topics.intents, key=key.encode(), value=None) for key in action.answered),
    ]


def placement_record(placement: Placement, topics: Topics) -> Record:
    """The record of a placement, keyed by its app."""
    return Record(topic=topics.placement, key=placement.app.encode(), value=encode_placement(placement), signed=True)


def status_record(status: Status, topics: Topics) -> Record:
    """The record of the status; if that is too large for a message, without workers and apps, counted as rejected."""
    value = encode_status(status)
    if len(value) > MAX_MESSAGE_BYTES:
        rejected = {**status.rejected, f"{topics.status}.{Fault.OVERSIZED}": 1}
        value = encode_status(
            replace(status, nodes=(), apps=(), pool=(), concerns=status.concerns[:KEPT_CONCERNS], rejected=rejected)
        )
    return Record(topic=topics.status, key=status_key(acting=status.acting), value=value)


def to_sign_again(
    placements: Iterable[Placement], signatures: Mapping[AppId, tuple[bytes, ...]], key: SigningKey, topics: Topics
) -> list[Record]:
    """The unchanged placements that another key has signed, since placements outlive a key."""
    records = {placement.app: placement_record(placement, topics) for placement in placements}
    return [record for app, record in records.items() if signatures_in(headers_of(record, key)) != signatures[app]]
