"""Records that somebody else writes to Trimtab's topics: true ones again, in another order or late, and untrue ones.

What is signed is signed with the cluster's own key here, so that it gets past the signature and is really read.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from flights.readback import Record, read_topic
from flights.steered_run import RunError
from tests.faults.played.faults import STOPPED_S, fault
from tests.faults.played.moments import Target
from tests.faults.played.stage import Stage, written_anew
from tests.faults.recorded.history import PLANTED
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.names import HostId, topic_settings
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.configuration import host_name

SIGNED = ("commands", "placement")
WRITTEN_TO = (*SIGNED, "acks", "handover", "reports")
"""The topics that agents, workers, controller and stream read records from which others have written."""
COUNT = 12
OVERSIZED_BYTES = 9 * 1024 * 1024
"""Above the limit of every decoder, below that of the topic."""
GONE_LIMIT_S = 30.0

Forge = Callable[[list[Record]], list[Record]]


def _again(rows: list[Record]) -> list[Record]:
    return rows[-COUNT:]


def _backwards(rows: list[Record]) -> list[Record]:
    return rows[-COUNT:][::-1]


def _late(rows: list[Record]) -> list[Record]:
    return rows[:COUNT]


def _torn(rows: list[Record]) -> list[Record]:
    """Cut short, a byte changed, no JSON, nothing."""
    ways: tuple[Callable[[bytes], bytes], ...] = (
        lambda value: value[: len(value) // 2],
        lambda value: value.replace(b'"v":', b'"v":\xff', 1),
        lambda value: b"\x00\xfe not json",
        lambda value: b"",
        lambda value: value.replace(b":", b";", 3),
        lambda value: json.dumps({**json.loads(value), "epoch": [-1, 1e400]}).encode(),
    )
    return [_with(row, ways[place % len(ways)](row.value or b"{}")) for place, row in enumerate(rows[-COUNT:])]


def _huge(rows: list[Record]) -> list[Record]:
    return [_with(rows[-1], (rows[-1].value or b"")[:-1] + b" " * OVERSIZED_BYTES + b"}")]


def _of_another_version(rows: list[Record]) -> list[Record]:
    def changed(row: Record, place: int) -> bytes:
        document = json.loads(row.value or b"{}")
        true = document["v"]
        others = (true + 1, true - 1, true + 98, -true, str(true), None)
        return json.dumps({**document, "v": others[place % len(others)]}).encode()

    return [_with(row, changed(row, place)) for place, row in enumerate(rows[-COUNT:])]


def _with(row: Record, value: bytes) -> Record:
    return Record(partition=row.partition, offset=row.offset, at=row.at, key=row.key, value=value)


def _striking(forge: Forge) -> Callable[[Stage, Target], Iterator[None]]:
    def strike(stage: Stage, target: Target) -> Iterator[None]:
        for part in WRITTEN_TO:
            topic = getattr(stage.cluster.topics, part)
            rows = [row for row in read_topic(stage.bootstrap, topic) if _is_own(row)]
            if not rows:
                raise RunError(f"{topic} is empty: there is nothing to forge from")
            plant(stage, topic, forge(rows), signed=part in SIGNED)
        yield

    return strike


def _is_own(row: Record) -> bool:
    return bool(row.value) and all(name != PLANTED for name, _ in row.headers)


def plant(stage: Stage, topic: str, rows: Sequence[Record], *, signed: bool) -> None:
    """Write the records, marked for the checker; without headers of their own they are signed if they have to be."""
    key, _ = stage.cluster.keys.load()
    producer = Producer(
        {"bootstrap.servers": stage.bootstrap, "message.max.bytes": 2 * OVERSIZED_BYTES, "log_level": 0}
    )
    for row in rows:
        headers = list(row.headers)
        if signed and not headers:
            headers = [key.sign(Envelope(topic=topic, key=row.key or b"", value=row.value or b""))]
        producer.produce(topic, row.value, row.key, row.partition, headers=[*headers, (PLANTED, b"1")])
    if producer.flush(30.0):
        raise RunError(f"the broker did not take the records for {topic}")


def _refused_as(reason: str) -> tuple[str, ...]:
    """By all who read the records: agents, workers, controller, stream."""
    readers = ("bad_commands", "worker_refused_records", "rejected acks.", "rejected reports")
    return tuple(f"{reader} ?{reason}" for reader in readers)


OLD_PLACEMENT = ("worker_refused_records old_epoch",)
"""The other records that come again are answered once more, or counted once."""

for _name, _forge, _must_say in (
    ("messages duplicated", _again, OLD_PLACEMENT),
    ("messages reordered", _backwards, OLD_PLACEMENT),
    ("messages delayed", _late, OLD_PLACEMENT),
    ("messages corrupted", _torn, _refused_as("malformed")),
    ("messages oversized", _huge, _refused_as("(oversized|flooding)")),
    ("messages of another version", _of_another_version, _refused_as("wrong_version")),
):
    fault(_name, STOPPED_S, *_must_say, spares_job=True, needs_round=True, needs_past=True)(_striking(_forge))


# ---------------------------------------------------------------------- one host speaks for the others
def _untrue(value: bytes) -> bytes:
    """A report of an idle worker that is gone, an ack that says that everything went wrong."""
    document = json.loads(value)
    if "phase" in document:
        return json.dumps({**document, "phase": "refused", "refusal": "guard", "at": time.time()}).encode()
    return json.dumps({**document, "t": time.time_ns() // 1_000_000, "w": [], "k": [], "e": []}).encode()


def _impersonate(stage: Stage, target: Target) -> Iterator[None]:
    """With the key of the first host: what the others have said, made untrue; half of it without a signature."""
    own = HostId(host_name(0))
    key = load_signing_key(stage.cluster.host_key(0))
    for part in ("reports", "acks"):
        topic = getattr(stage.cluster.topics, part)
        rows = [row for row in read_topic(stage.bootstrap, topic) if _is_own(row) and row.key != own.encode()]
        if not rows:
            raise RunError(f"{topic} is empty: there is nothing to forge from")
        forged = []
        for place, row in enumerate(rows[-COUNT:]):
            value, host = _untrue(row.value or b"{}"), HostId((row.key or b"").decode())
            headers = [HostSigner(key, host).sign(topic, value)] if place % 2 else []
            made = Record(partition=row.partition, offset=row.offset, at=row.at, key=row.key, value=value)
            forged.append(replace(made, headers=tuple(headers)))
        plant(stage, topic, forged, signed=False)
    yield


fault(
    "host speaks for others",
    STOPPED_S,
    *(f"rejected {reader} ?{reason}" for reader in ("acks.", "reports") for reason in ("unsigned", "unknown_key")),
    spares_job=True,
    needs_round=True,
    needs_past=True,
    stage="host keys",
)(_impersonate)


# ---------------------------------------------------------------------- a topic is lost
def _delete(stage: Stage, part: str) -> str:
    """Delete a topic, and note how much is lost; its name."""
    topic: str = getattr(stage.cluster.topics, part)
    stage.record()
    rows = sum(1 for _ in read_topic(stage.bootstrap, topic))
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.delete_topics([topic])[topic].result(GONE_LIMIT_S)
    stage.notes[f"rows of {part} lost"] = rows
    stage.emptied.add(part)
    return topic


def _emptying(part: str) -> Callable[[Stage, Target], Iterator[None]]:
    def strike(stage: Stage, target: Target) -> Iterator[None]:
        topic = _delete(stage, part)
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        if not stage.holds_within(GONE_LIMIT_S, lambda: topic not in admin.list_topics(timeout=10).topics):
            raise RunError(f"{topic} was not deleted")
        [settings] = [row for row in topic_settings(stage.cluster.topics) if row.name == topic]
        again = Topic(name=topic, partitions=settings.partitions, settings=settings.configuration)
        stage.cluster.broker.create_topics([again])
        yield

    return strike


ANOTHER = "acting as generation"
"""A controller that has begun anew reads the new topic from the start."""
NOTICED = {
    part: (f"topics were re-created, reading them .*{part}|{ANOTHER}",) for part in ("snapshots", "acks", "intents")
}
NOTICED["placement"] = (f"publishing all placements again|{ANOTHER}",)
"""By the controller.  Who reads the other topics logs nothing of it: what is written there afterwards shows that it
goes on."""

OF_TOPICS = {"spares_job": True, "needs_round": True, "needs_past": True}

for _part in ("reports", "snapshots", "placement", "commands", "acks", "handover", "journal", "intents", "status"):
    _shown = NOTICED.get(_part, (written_anew(_part),))
    fault(f"topic {_part} recreated empty", STOPPED_S, f"rows of {_part} lost", *_shown, **OF_TOPICS)(_emptying(_part))


@fault("topic events deleted", STOPPED_S, "rows of events lost", written_anew("events"), **OF_TOPICS)
def _without_events(stage: Stage, target: Target) -> Iterator[None]:
    """The controller creates it again."""
    _delete(stage, "events")
    yield
