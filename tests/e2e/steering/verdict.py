"""Reads everything back from Kafka and judges it: lost, duplicated, wrong table keys, commits, pauses."""

import asyncio
import json
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from flights import readback
from tests.e2e.steering.app_names import BUCKETS_PER_S, WINDOW_S, Feature, named_for
from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.repeats import oldest_repeat_local_s, oldest_repeat_s
from tests.e2e.steering.run_setup import EXTRAS, RENAMED, SOURCE, SUMS, WINDOWED, Setup
from trimtab_protocol.messages.names import AppId, WorkerId

STALL_LIMIT_S = 60.0
"""Workers that commit nothing for so long while something is left are not waited for."""

COMMIT_TAKES_S = 1.0
"""What a commit may need until it is in the log, besides what the machine is late (`Load.late_s`): 0.9 s was seen at a
load of ten per core, a tenth of that on a quiet machine. It is begun once per commit interval."""

FLUSHED_S = 2.0
"""Until then what a worker has committed is in the log, too."""

UNSTEERED = frozenset({Feature.STOCK, Feature.NO_CYTHON})

EXAMPLES = 5

Records = dict[int, list[tuple[bytes | None, bytes | None, float]]]
"""Partition -> key, value and timestamp (epoch seconds)."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a run did to the numbers it was given."""

    sent: int
    lost: dict[str, int]
    examples: tuple[int, ...]
    """Inputs that are in no output."""
    duplicated: dict[str, int]
    repeated_s: float | None
    """How long before a fault the oldest event was done that was done again, see `repeats`."""
    disorder: dict[str, int]
    """Events that were first done after a later one with the same key and from the same source partition."""
    stepped_back: dict[str, int]
    """Changelog records with a lower value than one before of the same key: old state was written over newer."""
    wrong_keys: dict[str, int]
    too_low: dict[str, int]
    """Keys that miss an event, or that a late write has set back."""
    done_again: dict[str, int]
    """How many events too many the counting tables have."""
    not_committed: dict[str, int]
    owners_wrong: int
    """Key groups that did not have exactly one owner at the end."""

    def complaints(
        self, again_s: float, rate: float, faults: int, *, unfinished: int = 0, stock: bool = False
    ) -> list[str]:
        """What is not as promised, when what was done so many seconds before a fault may be done again.

        `unfinished`: as many events besides may wait in a worker for what they have caused.
        `stock`: stock Faust took part.  It loses and repeats events at its rebalances; promised is then only that no
        state goes back, and that each key group has one owner in the end.
        """
        never = {"stepped back": self.stepped_back}
        if not stock:
            never |= {"out of order": self.disorder}
            never |= {"lost": self.lost, "too low": self.too_low, "not committed": self.not_committed}
        found = [f"{what}: {counts}" for what, counts in never.items() if any(counts.values())]
        if self.owners_wrong:
            found.append(f"key groups without exactly one owner: {self.owners_wrong}")
        if stock:
            return found
        if self.examples:
            found.append(f"never done: inputs {self.examples}")
        if self.repeated_s is not None and self.repeated_s > again_s:
            found.append(
                f"duplicated: {self.duplicated}, done {self.repeated_s:.2f} s before a fault, allowed {again_s:.2f} s"
            )
        again = int(faults * (rate * again_s + unfinished))
        found += [f"done again: {topic} {n}, allowed {again}" for topic, n in self.done_again.items() if n > again]
        if not again and any(self.wrong_keys.values()):
            found.append(f"wrong keys: {self.wrong_keys}")
        return found


async def judge(cluster: Cluster) -> Verdict:
    """Wait until everything sent is committed, end the workers, read everything back."""
    partitions = range(cluster.setup.partitions)
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})

    def left() -> dict[str, int]:
        found = {}
        for topic in ("numbers", named_for(cluster.app, "regrouped"), *cluster.load.sent_besides):
            count = range(cluster.load.partitions.get(topic, len(partitions)))
            wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in count}
            ends = {tp.partition: f.result().offset for tp, f in admin.list_offsets(wanted).items()}
            done = committed(admin, cluster.app, topic)
            found[topic] = sum(end - done.get(p, 0) for p, end in ends.items())
        return found

    best, since = sum(left().values()), time.monotonic()
    while best and time.monotonic() - since < STALL_LIMIT_S:
        await asyncio.sleep(0.5)
        if (now := sum(left().values())) < best:
            best, since = now, time.monotonic()
    not_committed = left()
    owners = cluster.owners()
    told = cluster.alive.keys() <= cluster.agent.statistics.keys() and all(
        _is_steered(cluster, n) for n in cluster.alive
    )
    owners_wrong = sum(len(owners[key_group]) != 1 for key_group in cluster.key_groups) if told else 0
    await _end(cluster)
    read = _read_all(cluster, cluster.app)
    every = range(len(cluster.load.sent))
    return _judged(cluster, read, _Inputs(numbers=every, regrouped=every), not_committed, owners_wrong)


def _is_steered(cluster: Cluster, name: WorkerId) -> bool:
    """Whether a worker's version of the job is one that the plug-in steers; else it does not say what it owns."""
    return UNSTEERED.isdisjoint(cluster.versions[name])


async def _end(cluster: Cluster) -> None:
    """End the workers, which have done everything.

    A worker that is not steered is killed: Faust's own consumer may wait for ever for an event that one of two agents
    refused in a rebalance, and the other one finished.
    """
    if not all(_is_steered(cluster, name) for name in cluster.alive):
        await asyncio.sleep(FLUSHED_S)
    for name, child in list(cluster.alive.items()):
        by = signal.SIGTERM if _is_steered(cluster, name) else signal.SIGKILL
        if await cluster.end(child, by=by) is None:
            raise TimeoutError(f"{name} did not end")
        del cluster.alive[name]


async def judge_retired(cluster: Cluster, app: AppId) -> Verdict:
    """An app whose last worker has ended: what it has committed it has done once, and nothing else."""
    admin, read = AdminClient({"bootstrap.servers": cluster.broker.address}), _read_all(cluster, app)
    upto = committed(admin, app, "numbers")
    places: Counter[int] = Counter()
    numbers = set()
    for number in range(len(cluster.load.sent)):
        partition = cluster.setup.source_partition(number)
        if places[partition] < upto.get(partition, 0):
            numbers.add(number)
        places[partition] += 1
    upto = committed(admin, app, named_for(app, "regrouped"))
    taken = [rows[: upto.get(partition, 0)] for partition, rows in read["regrouped"].items()]
    regrouped = {int(value) for rows in taken for _, value, _ in rows if value}
    return _judged(cluster, read, _Inputs(numbers=numbers, regrouped=regrouped), {}, 0)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The numbers that an app should have done, and those of them that should be in its totals."""

    numbers: Collection[int]
    regrouped: Collection[int]


def committed(admin: AdminClient, app: AppId, topic: str) -> dict[int, int]:
    """Partition -> offset."""
    [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(app)]).values()
    return {row.partition: max(0, row.offset) for row in answer.result().topic_partitions if row.topic == topic}


def _read_all(cluster: Cluster, app: AppId) -> dict[str, Records]:
    """All that an app has written, by the names of the first app's topics."""
    topics = ["outputs", "regrouped", "totals", *map(done_topic, cluster.load.sent_besides), *cluster.changelogs]
    return {topic: read_topic(cluster, named_for(app, topic)) for topic in topics}


def _judged(
    cluster: Cluster, read: dict[str, Records], inputs: _Inputs, not_committed: dict[str, int], owners_wrong: int
) -> Verdict:
    wanted_in: dict[str, Collection[int]] = {"outputs": inputs.numbers, "totals": inputs.regrouped}
    if Feature.LOCAL not in cluster.setup.features:  # else some of them skip the broker
        wanted_in |= {"regrouped": inputs.numbers}
    wanted_in |= {done_topic(topic): range(len(keys)) for topic, keys in cluster.load.sent_besides.items()}
    done = {topic: _done(read[topic]) for topic in ("regrouped", *wanted_in)}
    lost = {topic: sum(number not in done[topic] for number in wanted) for topic, wanted in wanted_in.items()}
    twice = {topic: sum(len(times) - 1 for times in seen.values()) for topic, seen in done.items()}
    found = {topic: _last(rows) for topic, rows in read.items() if topic in cluster.changelogs}
    if RENAMED in found:  # each number is in one of the two
        found[SUMS] = Counter(found.get(SUMS, {})) + Counter(found.pop(RENAMED))
    off = {
        topic: {key: found[topic].get(key, 0) - wanted.get(key, 0) for key in wanted.keys() | found[topic].keys()}
        for topic, wanted in _wanted(cluster, inputs).items()
    }
    ordered = ["outputs", *(["totals"] if Feature.WITHOUT_KEYS not in cluster.setup.features else [])]
    return Verdict(
        sent=len(inputs.numbers),
        lost=lost,
        examples=tuple(number for number in inputs.numbers if number not in done["outputs"])[:EXAMPLES],
        duplicated=twice,
        repeated_s=_repeated_s(cluster, done),
        disorder={topic: out_of_order(read[topic], cluster.setup) for topic in ordered},
        stepped_back={topic: steps_back(read[topic]) for topic in cluster.changelogs},
        wrong_keys={topic: sum(map(bool, keys.values())) for topic, keys in off.items()},
        too_low={topic: sum(d < 0 for d in keys.values()) for topic, keys in off.items()},
        done_again={t: sum(d for d in keys.values() if d > 0) for t, keys in off.items() if "sums" not in t},
        not_committed=not_committed,
        owners_wrong=owners_wrong,
    )


def _done(rows: Records) -> dict[int, list[float]]:
    """Number -> when it was done, in order."""
    done: dict[int, list[float]] = defaultdict(list)
    for partition in rows.values():
        for _, value, timestamp in partition:
            if value:
                done[int(value)].append(timestamp)
    return {number: sorted(times) for number, times in done.items()}


def _repeated_s(cluster: Cluster, done: dict[str, dict[int, list[float]]]) -> float | None:
    """See `Verdict.repeated_s`."""
    setup = cluster.setup
    if Feature.LOCAL in setup.features:
        return oldest_repeat_local_s(done, cluster.faults, setup.source_partition)
    return oldest_repeat_s(done, cluster.faults)


def _wanted(cluster: Cluster, inputs: _Inputs) -> dict[str, Counter[str]]:
    """Changelog -> key -> value, if every number counts once."""
    wanted: dict[str, Counter[str]] = {topic: Counter() for topic in cluster.changelogs if topic != RENAMED}
    for number in inputs.regrouped:
        wanted["oracle-groups-changelog"][f"g{number % cluster.setup.groups}"] += 1
    for number in inputs.numbers:
        key, timestamp = cluster.load.sent[number]
        wanted["oracle-counts-changelog"][key] += 1
        wanted["oracle-sums-changelog"][key] += number
        if cluster.setup.windowed:
            wanted[WINDOWED][_window_key(key, timestamp)] += 1
    for key in cluster.load.sent_besides.get("orders", ()):
        wanted["oracle-counts-changelog"][key] += 1
        wanted[EXTRAS][key] += 1
    return wanted


def done_topic(topic: str) -> str:
    """Where the job says that it has done an input of this topic."""
    return f"{topic}_done"


def steps_back(rows: Records) -> int:
    """How many records of a changelog, all of whose values only grow, are below one before of the same key."""
    count = 0
    for partition in rows.values():
        highest: dict[bytes, int] = {}
        for key, value, _ in partition:
            if key is not None and value:
                count += int(value) < highest.get(key, int(value))
                highest[key] = max(int(value), highest.get(key, int(value)))
    return count


def out_of_order(rows: Records, setup: Setup) -> int:
    """How many numbers were first done after a later one with the same key and from the same source partition."""
    count = 0
    for partition in rows.values():
        highest: dict[tuple[bytes | None, int], int] = {}
        seen: set[int] = set()
        for key, value, _ in partition:
            if not value or (number := int(value)) in seen:
                continue
            seen.add(number)
            origin = key, setup.source_partition(number)
            count += number < highest.get(origin, -1)
            highest[origin] = max(number, highest.get(origin, -1))
    return count


def _window_key(key: str, timestamp: float) -> str:
    start = timestamp // WINDOW_S * WINDOW_S
    return json.dumps([key, [start, start + WINDOW_S - 0.1]])


def _last(rows: Records) -> dict[str, int]:
    """Key -> last value in a changelog; the sum of them for a key that is in several of its partitions."""
    total: Counter[str] = Counter()
    for partition in rows.values():
        state: dict[str, int] = {}
        for key, value, _ in partition:
            name = json.loads(key or b'""')
            state[name if isinstance(name, str) else json.dumps(name)] = int(value) if value else 0
        total.update(state)
    return total


def read_topic(cluster: Cluster, topic: str) -> Records:
    """All records of one topic."""
    rows: Records = defaultdict(list)
    for row in readback.read_topic(cluster.broker.address, topic):
        rows[row.partition].append((row.key, row.value, row.at))
    return rows


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """Longest times without a processed event of a key group, in seconds."""

    count: int
    median: float
    p90: float
    longest: float

    def __str__(self) -> str:
        return f"n={self.count:4d}  median {self.median:.3f}  p90 {self.p90:.3f}  max {self.longest:.3f} s"


def pauses(cluster: Cluster, window_s: float = 2.0) -> dict[str, Pauses]:
    """Pauses of the source operator's key groups within `window_s` after a move, and in calm time."""
    times = _processed(cluster.folder)
    found: dict[str, list[float]] = defaultdict(list)
    partitions = range(cluster.setup.partitions)

    def longest(partition: int, at: float, length: float) -> float:
        steps = pairwise(times[partition])
        return max((b - a for a, b in steps if b >= at - 0.1 and a <= at + length), default=0.0)

    for move in cluster.moves:
        moved = {k.partition for k in move.key_groups if k.operator == SOURCE}
        for partition in partitions:
            who = "moved" if partition in moved else "others"
            found[f"{move.kind}, {who}"].append(longest(partition, move.at, window_s))
    for began, ended in cluster.calm:
        at = began
        while at + window_s <= ended:
            found["calm"] += [longest(partition, at, window_s) for partition in partitions]
            at += window_s
    return {name: summary(values) for name, values in sorted(found.items())}


def summary(values: Iterable[float]) -> Pauses:
    ordered = sorted(values)
    return Pauses(
        count=len(ordered),
        median=statistics.median(ordered),
        p90=ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        longest=ordered[-1],
    )


def _processed(folder: Path) -> dict[int, list[float]]:
    """Partition -> times (epoch seconds) at which its events were processed, on any worker."""
    times: dict[int, set[int]] = defaultdict(set)
    for log in folder.glob("*.seen"):
        for line in log.read_text().splitlines():
            for partition, buckets in json.loads(line).items():
                times[int(partition)].update(bucket for bucket, _ in buckets)
    return defaultdict(list, {p: [b / BUCKETS_PER_S for b in sorted(found)] for p, found in times.items()})
