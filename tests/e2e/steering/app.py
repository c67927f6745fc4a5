"""The oracle's app: two agents and two tables on one source, a repartition topic with a third table, a windowed table.

Set up by the environment.  `features` make another version of the job of it, see `Feature`.  Faults are put in from
here, around the plug-in's steps: it has no switches for them.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import TopicAuthorizationFailedError
from faust.exceptions import ValueDecodeError
from faust.tables.recovery import Recovery

from tests.e2e.steering.app_names import (
    BATCH_S,
    BREACHES,
    BUCKETS_PER_S,
    CARELESS,
    HOLD,
    MAY_NOT_TELL,
    OTHER_APP,
    REJOIN,
    SLOW_RECOVERY,
    WINDOW_S,
    Feature,
    named_for,
    note_fault,
)
from tests.e2e.steering.planted_in_place import IN_PLACE_DEFECTS
from tests.e2e.steering.planted_local import DEFECTS
from trimtab_agent.engines.faust import SteeringSettings, install
from trimtab_agent.engines.faust.group import ownership
from trimtab_agent.engines.faust.handover import handover as handover
from trimtab_agent.engines.faust.local.hop import LocalSettings
from trimtab_agent.engines.faust.safety import store_guard as guarded
from trimtab_agent.engines.faust.settings import InPlace
from trimtab_agent.engines.faust.steering.handover_receiver import HandoverReceiver
from trimtab_agent.engines.faust.steering.side_services import SideServices
from trimtab_agent.engines.faust.tables import changelog_reader
from trimtab_agent.engines.faust.tables import standbys as standby
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.thread import SteeredThread
from trimtab_protocol.messages.handover import HandoverKind

SETUP = json.loads(os.environ["ORACLE_SETUP"])
FOLDER = Path(SETUP["folder"])
PARTITIONS = SETUP["partitions"]
SOURCE_PARTITIONS = SETUP.get("source_partitions", PARTITIONS)
WORKER = os.environ["TRIMTAB_WORKER"]
FEATURES = frozenset(map(Feature, SETUP.get("features", ())))
APP_ID = OTHER_APP if Feature.OTHER_APP in FEATURES else SETUP["app"]
DISK = SETUP.get("disk", f"{WORKER}-2" if Feature.OTHER_APP in FEATURES else WORKER)

# ---- defects that the oracle must find

if "follows what it owns" in SETUP["planted"]:
    # A worker takes for a standby what it is writing itself.
    class Blind:
        def __init__(self, ownership: Any) -> None:
            self._ownership = ownership

        def is_active(self, _: Any) -> bool:
            return False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ownership, name)

    keep_warm = standby.Standbys.__init__
    standby.Standbys.__init__ = lambda self, app, owned, *others: keep_warm(self, app, Blind(owned), *others)  # type: ignore[method-assign, assignment, arg-type, misc]
    ownership.Ownership.holds = lambda *_: False  # type: ignore[method-assign]
    # It would close the database of an active partition, and a read of it could then end the worker first.
    standby.Standbys.cool = lambda self, key_groups: self.leave(self._ownership.changelogs(key_groups))  # type: ignore[method-assign]
    # It would set aside the database of an owner, which is ahead of the end that it has asked for before.
    standby.ahead_of = lambda *_: None  # type: ignore[attr-defined]
    apply = changelog_reader.ChangelogReader._apply

    def late(self: Any, tp: Any, records: Any) -> None:
        time.sleep(0.2)  # as on a busy machine: on a quiet one it reads back its newest writes, and no harm is done
        apply(self, tp, records)

    changelog_reader.ChangelogReader._apply = late  # type: ignore[method-assign]
if "unguarded" in SETUP["planted"]:
    guarded.StoreGuard._apply_or_end = lambda self, table, apply: apply  # type: ignore[method-assign]

for name in SETUP["planted"]:
    {**DEFECTS, **IN_PLACE_DEFECTS}.get(name, lambda: None)()

if SETUP.get("link_bytes_s"):
    # Every worker reads changelogs for hand-overs and standbys as if its host had a slow link of its own.
    class SlowLink(AIOKafkaConsumer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options, max_partition_fetch_bytes=50_000)  # else one partition has the link for seconds

        async def getmany(self, *tps: Any, timeout_ms: int = 0, max_records: int | None = None) -> Any:
            batches = await super().getmany(*tps, timeout_ms=timeout_ms, max_records=50)
            size = sum(len(row.key or b"") + len(row.value or b"") for rows in batches.values() for row in rows)
            await asyncio.sleep(size / SETUP["link_bytes_s"])
            return batches

    changelog_reader.AIOKafkaConsumer = SlowLink  # type: ignore[attr-defined]
    fetch = SteeredConsumer._getmany

    async def fetch_slowly(self: Any, active_partitions: Any, timeout: float) -> Any:
        batches = await fetch(self, active_partitions, timeout)
        if (FOLDER / SLOW_RECOVERY).exists():
            logs = [rows for tp, rows in batches.items() if tp.topic.endswith("-changelog")]
            size = sum(len(row.key or b"") + len(row.value or b"") for rows in logs for row in rows)
            await asyncio.sleep(size / SETUP["link_bytes_s"])
        return batches

    SteeredConsumer._getmany = fetch_slowly  # type: ignore[method-assign]

app = faust.App(
    APP_ID,
    broker=f"kafka://{SETUP['bootstrap']}",
    store="memory://" if Feature.IN_MEMORY in FEATURES else "rocksdb://",
    datadir=str(FOLDER / DISK),
    canonical_url=f"http://{DISK}:6066",
    web_enabled=False,
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    broker_client_id=DISK,
    broker_commit_interval=SETUP["commit_interval_s"],
    broker_session_timeout=SETUP["session_s"],
    broker_heartbeat_interval=SETUP["heartbeat_s"],
    broker_rebalance_timeout=20.0,
    broker_max_poll_interval=SETUP.get("max_poll_s", 1000.0),
    stream_buffer_maxsize=SETUP.get("queue", 4096),
    table_standby_replicas=0 if Feature.NO_STANDBYS in FEATURES else 1,
)
raw = {"key_type": str, "value_type": int, "key_serializer": "raw", "value_serializer": "json"}
numbers = app.topic("numbers", **raw)
outputs, totals = (app.topic(named_for(APP_ID, name), **raw) for name in ("outputs", "totals"))
regrouped = app.topic(named_for(APP_ID, "regrouped"), internal=True, partitions=PARTITIONS, **raw)


def table(name: str, value_type: type = int, partitions: int = SOURCE_PARTITIONS) -> Any:
    small = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20}
    types = {"key_type": str, "value_type": value_type}
    buffer = {"recovery_buffer_size": SETUP.get("recovery_buffer", 1000)}
    return app.Table(name, default=value_type, partitions=partitions, options=small, **types, **buffer)


counts, groups = table("counts"), table("groups", partitions=PARTITIONS)
sums = table("renamed" if Feature.TABLE_RENAMED in FEATURES else "sums")
windowed = table("windowed").tumbling(WINDOW_S, expires=3600.0) if SETUP["windowed"] else None
own = {"source": [numbers, counts, sums, *([windowed] if windowed is not None else [])], "regroup": [regrouped, groups]}
if Feature.ORDERS in FEATURES:
    orders, orders_done = app.topic("orders", **raw), app.topic("orders_done", **raw)
    extras = table("extras")
    own["source"] += [orders, extras]

    @app.agent(orders)
    async def take_order(stream: Any) -> None:
        async for event in stream.events():
            counts[text(event.key)] += 1  # a table that the other version has, too
            extras[text(event.key)] += 1
            await orders_done.send(key=event.key, value=event.value)


if Feature.STATELESS in FEATURES:
    alerts, alerts_done = app.topic("alerts", **raw), app.topic("alerts_done", **raw)
    own["alerts"] = [alerts]

    @app.agent(alerts)
    async def pass_on(stream: Any) -> None:
        if Feature.BATCHES in FEATURES:
            async for events in stream.take_events(100_000, within=BATCH_S):
                for event in events:
                    await alerts_done.send(key=event.key, value=event.value)
            return
        async for event in stream.events():
            await alerts_done.send(key=event.key, value=event.value)


if Feature.CARELESS in FEATURES:
    tardy, odd = table("late"), table("odd", str)
    own["source"] += [tardy, odd]
    LATE = (FOLDER / f"{WORKER}.late").open("a", buffering=1)
    working: set[asyncio.Task[None]] = set()

    async def write_late(key: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 2.0))
        try:
            tardy[key] += 1
        except guarded.LateWrite:
            LATE.write(f"{key}\n")

    @app.agent(numbers)
    async def take_no_care(stream: Any) -> None:
        async for event in stream.events():
            task = asyncio.create_task(write_late(text(event.key)), name=str(event))
            task.event = event  # type: ignore[attr-defined]
            working.add(task)
            task.add_done_callback(working.discard)
            told = json.loads((FOLDER / CARELESS).read_text()) if (FOLDER / CARELESS).exists() else {}
            if event.value == told.get("none"):
                odd[None] = "nobody's"
            if event.value == told.get("large"):
                odd[text(event.key)] = "x" * 5000


if Feature.BEHIND in FEATURES:
    behind = table("behind")
    own["source"].append(behind)

    @app.agent(numbers)
    async def fall_behind(stream: Any) -> None:
        async for event in stream.events():
            await asyncio.sleep(0.02)
            behind[text(event.key)] += 1


if Feature.RECORDS in FEATURES:
    UNREADABLE = (FOLDER / f"{WORKER}.unreadable").open("a", buffering=1)

    class Seen(faust.Record):
        times: int
        if Feature.NEW_FIELD in FEATURES:
            since: str

    records = table("records", Seen)
    own["source"].append(records)

    @app.agent(numbers)
    async def keep_record(stream: Any) -> None:
        async for event in stream.events():
            key = text(event.key)
            try:
                before = records[key].times if key in records else 0
            except ValueDecodeError:
                UNREADABLE.write(f"{key}\n")
            else:
                records[key] = Seen(before + 1, *(["now"] if Feature.NEW_FIELD in FEATURES else []))


if SETUP.get("writes"):
    many = table("many")
    own["source"].append(many)

    @app.agent(numbers)
    async def write_many(stream: Any) -> None:
        async for event in stream.events():
            for place in range(SETUP["writes"]):
                many[f"{text(event.key)}.{place}"] += 1


if Feature.BALLAST in FEATURES:
    own["source"].append(table("ballast", str))
if Feature.ONE_OPERATOR in FEATURES:
    own = {"everything": [part for parts in own.values() for part in parts]}
elif Feature.OTHER_NAMES in FEATURES:
    own = {f"{name}-2": parts for name, parts in own.items()}
elif Feature.UNNAMED in FEATURES:
    own = {}
if Feature.STOCK not in FEATURES:
    limits = {"took_limit_s": SETUP.get("took_limit_s", 4.0), "drain_limit_s": SETUP.get("drain_limit_s", 10.0)}
    plugin = install(
        app,
        operators=own,
        settings=SteeringSettings(**limits, in_place=InPlace(SETUP.get("in_place", "off"))),
        local=[regrouped] if Feature.LOCAL in FEATURES else [],
        local_settings=LocalSettings(**SETUP.get("local", {})),
    )

seen: dict[int, dict[int, int]] = defaultdict(dict)
"""Partition of `numbers` -> bucket of 5 ms -> longest latency in ms."""


def text(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def group_of(number: int) -> str:
    return f"g{number % SETUP.get('groups', 97)}"


@app.agent(numbers)
async def count(stream: Any) -> None:
    async for event in stream.events():
        counts[text(event.key)] += 1
        if windowed is not None:
            windowed[text(event.key)] += 1
        now, buckets = time.time(), seen[event.message.partition]
        bucket = int(now * BUCKETS_PER_S)
        buckets[bucket] = max(buckets.get(bucket, 0), int((now - event.message.timestamp) * 1e3))
        if SETUP["work_s"]:
            await asyncio.sleep(SETUP["work_s"])
        await outputs.send(key=event.key, value=event.value)
        await regrouped.send(key=None if Feature.WITHOUT_KEYS in FEATURES else group_of(event.value), value=event.value)


remembered: dict[str, tuple[int, int]] = {}
"""Key -> (partition, sum): what many apps keep in memory beside their tables, until they lose the partition."""


@app.on_partitions_revoked.connect
async def forget(_: Any, revoked: Any, **__: Any) -> None:
    gone = {tp.partition for tp in revoked if tp.topic == "numbers"}
    for key in [key for key, (partition, _) in remembered.items() if partition in gone]:
        del remembered[key]


@app.agent(numbers)
async def add(stream: Any) -> None:
    async for event in stream.events():
        key = text(event.key)
        before = remembered[key][1] if key in remembered else sums[key]
        sums[key] = before + event.value
        remembered[key] = event.message.partition, sums[key]


not_acknowledged: list[Any] = []


@app.agent(regrouped)
async def total(stream: Any) -> None:
    async for event in (stream.noack() if Feature.BY_HAND in FEATURES else stream).events():
        if SETUP.get("slow_s"):
            await asyncio.sleep(SETUP["slow_s"])
        group = group_of(event.value)
        groups[group] += 1
        await totals.send(key=group, value=event.value)
        if Feature.FAILS in FEATURES and event.value % 200 == 150:
            raise ValueError(f"fails at {event.value}")
        if Feature.BY_HAND in FEATURES:
            not_acknowledged.append(event)


@app.task
async def acknowledge() -> None:
    last = time.monotonic()
    while Feature.BY_HAND in FEATURES:
        await asyncio.sleep(0.02)
        every_s = float((FOLDER / HOLD).read_text() or 0) if (FOLDER / HOLD).exists() else 0.0
        if time.monotonic() >= last + every_s:
            for event in not_acknowledged:
                event.ack()
            not_acknowledged.clear()
            last = time.monotonic()


@app.task
async def rejoin_when_told() -> None:
    told = FOLDER / f"{WORKER}.{REJOIN}"
    while SETUP.get("in_place", "off") != "off":
        await asyncio.sleep(0.02)
        if told.exists():
            told.unlink()
            thread = app.consumer.thread
            thread.thread_loop.call_soon_threadsafe(thread._consumer._coordinator.request_rejoin)


@app.task
async def write_what_was_seen() -> None:
    with (FOLDER / f"{WORKER}.seen").open("a", buffering=1) as log:
        while True:
            await asyncio.sleep(0.5)
            taken = {partition: list(buckets.items()) for partition, buckets in seen.items()}
            seen.clear()
            log.write(json.dumps(taken) + "\n")


@app.task
async def write_what_is_warm() -> None:
    while Feature.STOCK not in FEATURES:
        await asyncio.sleep(0.5)
        followed = plugin.steering.standbys.followed()
        try:
            lag = await plugin.steering.standbys.lag_records(followed)
        except RuntimeError:  # the worker stops: its consumer answers nothing any more
            return
        (FOLDER / f"{WORKER}.new").write_text(json.dumps({"key_groups": sorted(map(str, followed)), "lag": lag}))
        (FOLDER / f"{WORKER}.new").rename(FOLDER / f"{WORKER}.warm")


@app.task
async def write_what_is_direct() -> None:
    while Feature.LOCAL in FEATURES:
        await asyncio.sleep(0.1)
        if (hop := plugin.hop) is not None:
            states = [gate.state.value for route in hop.routes.values() for gate in route.gates.values()]
            told = {"direct": hop.finished, "overtaking": hop.overtaking, "given up": hop.given_up, "gates": states}
            told["unfinished"] = sum(route.unfinished for route in hop.routes.values())
            told["refused"] = [route.refused for route in hop.routes.values() if route.refused]
            (FOLDER / f"{WORKER}.told").write_text(json.dumps(told))
            (FOLDER / f"{WORKER}.told").rename(FOLDER / f"{WORKER}.direct")


seek = Recovery._seek_offsets


async def seek_and_note(self: Any, consumer: Any, tps: Any, offsets: Any, title: str) -> None:
    with (FOLDER / f"{WORKER}.restored").open("a") as log:
        log.write(json.dumps({"title": title, "partitions": len(tps), "records": self.active_remaining_total()}) + "\n")
    await seek(self, consumer, tps, offsets, title)


Recovery._seek_offsets = seek_and_note


# ---- faults: "die POINT" or "stop POINT" in the worker's file; delays (seconds) by step, or by worker and step

FAULT = FOLDER / f"{WORKER}.fault"


def fault(point: str) -> None:
    wanted = FAULT.read_text().split() if FAULT.exists() else []
    if wanted[1:] == [point]:
        FAULT.unlink()
        note_fault(FOLDER)
        if wanted[0] == "die":
            os._exit(9)
        os.kill(os.getpid(), signal.SIGSTOP)


def with_faults(owner: type, name: str, before: str, after: str) -> None:
    step = getattr(owner, name)

    async def faulty(self: Any, *args: Any, **options: Any) -> Any:
        fault(before)
        result = await step(self, *args, **options)
        fault(after)
        return result

    setattr(owner, name, faulty)


def with_delay(owner: type, name: str) -> None:
    step, delays_s = getattr(owner, name), SETUP["delays_s"]
    delay_s = delays_s.get(f"{WORKER} {name}", delays_s.get(name, 0.0))

    async def late(self: Any, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(delay_s)
        return await step(self, *args, **options)

    if delay_s:
        setattr(owner, name, late)


with_faults(handover.KeyGroupHandover, "release", "old_before", "old_committed")
with_faults(handover.KeyGroupHandover, "take", "new_before", "new_taken")
end = guarded.StoreGuard._end


def end_and_note(self: Any, *why: Any) -> None:
    if not self._fence.broken and (FOLDER / BREACHES).exists():
        note_fault(FOLDER)
    end(self, *why)


guarded.StoreGuard._end = end_and_note  # type: ignore[method-assign, assignment]
publish = SideServices.publish


async def publish_and_fail(self: Any, record: Any) -> None:
    if (FOLDER / MAY_NOT_TELL).exists():
        raise TopicAuthorizationFailedError
    await publish(self, record)
    if record.kind is HandoverKind.RELEASED:
        fault("old_released")


SideServices.publish = publish_and_fail  # type: ignore[method-assign]
for owner, names in {
    SteeredConsumer: ("perform_seek", "drain", "wait_for_commit", "_fetch", "on_partitions_revoked"),
    SteeredProducer: ("flush", "renew_if_condemned"),
    SteeredThread: ("prove_by_commit", "run"),
    SideServices: ("publish",),
    HandoverReceiver: ("_take",),
}.items():
    for name in names:
        with_delay(owner, name)

if __name__ == "__main__":
    app.main()
