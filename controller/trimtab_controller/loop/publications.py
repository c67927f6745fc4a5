"""Turns the controller's publications into Kafka records."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trimtab_controller.execution.disruption import Disruption
from trimtab_controller.execution.events import Publish
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import JournalEntry, encode_entry
from trimtab_controller.kafka.publisher import Record
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, Fault
from trimtab_protocol.messages.names import AppId, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import records_of as placement_records_of
from trimtab_protocol.messages.status import Status, status_key
from trimtab_protocol.signing.keys import KeyId, SigningKey

KEPT_CONCERNS = 100
"""Number of concerns kept in a status that is too large."""


def records_of(action: Publish, acks_read: Mapping[int, int], topics: Topics, *, limited: bool) -> list[Record]:
    """The records of one publication: journal entry, placements, commands, and tombstones of answered intents.

    `acks_read`: next offset of each partition of the acks topic; it becomes part of the journal entry.  `limited`:
    whether an app has a disruption budget.  Only then does the entry, which becomes larger by it, say what has paused.
    """
    execution = action.execution if limited else replace(action.execution, disruption=Disruption())
    entry = JournalEntry(execution=execution, acks_read=acks_read)
    return [
        Record(topic=topics.journal, key=JOURNAL_KEY, value=encode_entry(entry)),
        *(
            record
            for placement in action.placements
            for record in placement_records(placement, action.before.get(placement.app), topics)
        ),
        *(
            Record(topic=topics.commands, key=command.host.encode(), value=encoded(command), signed=True)
            for command in action.commands
        ),
        *(Record(topic=topics.intents, key=key.encode(), value=None) for key in action.answered),
    ]


def placement_records(placement: Placement, before: Placement | None, topics: Topics) -> list[Record]:
    """The records that publish a placement; `before` = what the topic has of it, None: nothing that is known."""
    return [
        Record(topic=topics.placement, key=key, value=value, signed=True)
        for key, value in placement_records_of(placement, before)
    ]


def status_record(status: Status, topics: Topics) -> Record:
    """The record of the status; if that is too large for a message, without workers and apps, counted as rejected."""
    value = encoded(status)
    if len(value) > MAX_MESSAGE_BYTES:
        rejected = {**status.rejected, f"{topics.status}.{Fault.OVERSIZED}": 1}
        value = encoded(
            replace(
                status,
                nodes=(),
                apps=(),
                pool=(),
                intents=None,
                concerns=status.concerns[:KEPT_CONCERNS],
                rejected=rejected,
            )
        )
    return Record(topic=topics.status, key=status_key(acting=status.acting), value=value)


def to_sign_again(
    placements: Iterable[Placement], signers: Mapping[AppId, frozenset[KeyId | None]], key: SigningKey, topics: Topics
) -> list[Record]:
    """All records of the placements of which another key has signed any, since placements outlive a key."""
    return [
        record
        for placement in placements
        if signers[placement.app] != {key.public.id}
        for record in placement_records(placement, None, topics)
    ]
