"""The facts of a run, read back from Kafka afterwards: outputs, waits, hand-overs, windows."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from flights.dataset import read_flights
from flights.demo.pauses import Moved, Passage, Waits
from flights.readback import Record, read_table, read_topic
from flights.replay import Sent
from flights.verify import Answers, Events, compare, count_events, expected_sums, flights_sent
from flights.watch import read_snapshots
from flights.wire import APP, DELAYS, EXTRACT, SOURCE, SUMS, TOTALS, decode_source, decode_total
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A worker that the controller started: when (epoch seconds), when it had ended, and with which exit code."""

    started_at: float
    stopped_at: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The input of the summary.  `stays` = what the controller's starts and stops of workers came to."""

    events: Events
    answers: Answers
    waits: Mapping[KeyGroup, Waits]
    handovers: tuple[Moved, ...]
    snapshots: tuple[Snapshot, ...]
    stays: Mapping[WorkerId, Stay]


def gather(bootstrap: str, topics: Topics, sent: Sent) -> Evidence:
    """Read everything from Kafka.  Raises KafkaException, TimeoutError."""
    flights = flights_sent(read_flights(), sent)
    delays = list(read_topic(bootstrap, DELAYS))
    totals = list(read_topic(bootstrap, TOTALS))
    outputs = [decode_total(row.key, row.value) for row in totals if row.key is not None and row.value is not None]
    commands = [decoded(row.value, Command) for row in read_topic(bootstrap, topics.commands)]
    acks = [decoded(row.value, Ack) for row in read_topic(bootstrap, topics.acks)]
    return Evidence(
        events=count_events(flights, outputs),
        answers=compare(expected_sums(flights), read_table(bootstrap)),
        waits=waits_of_both_operators(read_topic(bootstrap, SOURCE), delays, totals),
        handovers=handovers_of(commands, acks),
        snapshots=read_snapshots(bootstrap, topics),
        stays=stays_of(commands, acks),
    )


def waits_of_both_operators(
    source: Iterable[Record], delays: Iterable[Record], totals: Iterable[Record]
) -> dict[KeyGroup, Waits]:
    """The waits of all flights at `extract` and at `sums`, by key group.

    A flight arrives at an operator when its record is produced to the operator's topic.  It is processed when the
    operator's output is produced.  Of one that skips the broker in between only the whole way is known; both topics are
    keyed by airplane, so it stays in one partition.
    """
    arrived = {decode_source(row.value)[0]: (row.at, row.partition) for row in source if row.value is not None}
    extracted: dict[int, float] = {}
    homes: dict[int, int] = {}
    passages: dict[KeyGroup, list[Passage]] = defaultdict(list)
    for row in delays:
        sequence = json.loads(row.value or b"[-1]")[0]
        extracted[sequence], homes[sequence] = row.at, row.partition
        if sequence in arrived:
            passage = Passage(arrived_at=arrived[sequence][0], processed_at=row.at)
            passages[KeyGroup(AppId(APP), OperatorId(EXTRACT), row.partition)].append(passage)
    for row in totals:
        sequence = json.loads(row.value or b"[-1]")[0]
        if sequence in extracted:
            passage = Passage(arrived_at=extracted[sequence], processed_at=row.at)
            passages[KeyGroup(AppId(APP), OperatorId(SUMS), homes[sequence])].append(passage)
        elif sequence in arrived:
            passage = Passage(arrived_at=arrived[sequence][0], processed_at=row.at)
            for operator in (EXTRACT, SUMS):
                passages[KeyGroup(AppId(APP), OperatorId(operator), arrived[sequence][1])].append(passage)
    return {key_group: Waits(rows) for key_group, rows in passages.items()}


def handovers_of(commands: Iterable[Command], acks: Iterable[Ack]) -> tuple[Moved, ...]:
    """The completed hand-overs, each from the acceptance of the release to the new owner's `took`."""
    releases = {command.handover: command for command in commands if command.kind is CommandKind.RELEASE}
    accepted: dict[str | None, float] = {}
    taken: dict[str | None, float] = {}
    for ack in acks:
        if ack.kind is CommandKind.RELEASE and ack.phase is Phase.ACCEPTED:
            accepted.setdefault(ack.handover, ack.at)
        elif ack.phase is Phase.TOOK:
            taken.setdefault(ack.handover, ack.at)
    moved = [
        Moved(
            key_groups=releases[name].key_groups,
            start=accepted.get(name, releases[name].issued_at),
            end=end,
        )
        for name, end in taken.items()
        if name in releases
    ]
    return tuple(sorted(moved, key=lambda row: row.start))


def stays_of(commands: Iterable[Command], acks: Iterable[Ack]) -> dict[WorkerId, Stay]:
    """The last start of each worker that the controller started, and the stop that followed."""
    stays = {row.worker: Stay(started_at=row.issued_at) for row in commands if row.kind is CommandKind.START}
    for ack in acks:
        if ack.phase is Phase.STOPPED and ack.worker in stays:
            stays[ack.worker] = replace(stays[ack.worker], stopped_at=ack.at, exit_code=ack.exit_code)
    return stays
