"""Builds the hand-over records of source and target, and converts their offsets to and from Faust's types."""

from collections.abc import Mapping
from dataclasses import replace

from faust.types import TP

from trimtab_agent.engines.faust.handover.handover import Given
from trimtab_protocol.messages.commands import Command
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord, Offsets


def released(command: Command, given: Given, cluster: str) -> HandoverRecord:
    """The record that allows the target to take over."""
    assert command.handover is not None
    assert command.generation is not None
    assert command.source is not None
    assert command.target is not None
    assert command.app is not None
    return HandoverRecord(
        kind=HandoverKind.RELEASED,
        cluster=cluster,
        app=command.app,
        handover=command.handover,
        epoch=command.epoch,
        generation=command.generation,
        source=command.source,
        target=command.target,
        key_groups=command.key_groups,
        offsets=_rows(given.offsets),
        ends=_rows(given.ends),
        held_s=given.drain_s + given.flush_s + given.commit_s,
    )


def took(record: HandoverRecord) -> HandoverRecord:
    """The record that confirms that the target has taken over."""
    return replace(record, kind=HandoverKind.TOOK, offsets=(), ends=(), held_s=0.0)


def given_back(record: HandoverRecord) -> HandoverRecord:
    """The record with which a target that has never owned the key groups releases them to their source again."""
    return replace(record, source=record.target, target=record.source)


def _rows(offsets: Mapping[TP, int]) -> Offsets:
    return tuple((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items()))


def by_partition(rows: Offsets) -> dict[TP, int]:
    """Offsets of a record by Faust partition."""
    return {TP(topic, partition): offset for topic, partition, offset in rows}
