"""Where Faust's router sends a request for a key: to the worker that owns the key's partition now.

Faust learns the owners' addresses at rebalances only.  A hand-over changes them in between: the old and the new owner
note it as they give and take, the others when they read `took`.  Whatever a record says, a worker answers for a
partition only while it owns it by its own books and its table is restored.  Where no owner is known, or it is this
worker that does not own it any more, the router answers 503.

Used on the event loop only.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from faust.stores.rocksdb import Store
from faust.types import TP, TopicT
from faust.web.exceptions import ServiceUnavailable
from yarl import URL

from trimtab_agent.engines.faust.safety.in_place import group_generation
from trimtab_agent.engines.faust.safety.placed_keys import MAX_OTHERS, placing, text_of
from trimtab_protocol.messages.names import WorkerId

Distribution = Mapping[str, Mapping[str, Iterable[int]]]
"""Faust's form: address -> topic -> partitions."""
ROWS, ROWS_EACH = 50, 10
"""How many rows show how the keys of their table are placed, and how many of them each partition."""


class Routes:
    """The routes of one worker."""

    def __init__(self, app: Any, is_active: Callable[[TP], bool]) -> None:
        self._app = app
        self._is_active = is_active
        self.addresses: Mapping[WorkerId, str] = {}
        """Of the members of this generation, as its leader told; empty under a leader with an older plug-in."""
        self._restored: set[TP] = set()
        self._restored_in = 0
        self._moved: dict[TP, tuple[int, str | None]] = {}
        """Generation, and address of the owner by a hand-over; None = its source has given the partition away."""

    def place(self, topic: str, key: bytes, told: Mapping[TP, str]) -> TP:
        """The partition of a changelog in which the events of this key of the table write it.

        Of a table of which this worker has no partition, any: its owner knows.  Raises ServiceUnavailable where the
        answer might be another worker's.
        """
        partition: Callable[[str, bytes], TP] = self._app.producer.key_partition
        table = self._app.tables._changelogs.get(topic)
        tps = [tp for tp in told if tp.topic == topic]
        steered = isinstance(getattr(table, "data", None), Store) and not (table.is_global or table.use_partitioner)
        if not steered or len(tps) < 2:
            return partition(topic, key)
        placed, text = self._app.transport.guard.placed[topic], text_of(key)
        if placed.newest is not None and not placed.elsewhere:
            sent, found = placed.newest
            placed.elsewhere = partition(topic, sent).partition != found
        if placed.elsewhere:
            raise ServiceUnavailable(
                f"table {table.name}: its events are placed by another partitioner than this app's"
            )
        if text in placed.others or len(placed.others) > MAX_OTHERS:
            raise ServiceUnavailable(f"table {table.name}: events of other keys write this one, on several workers")
        if (quoted := placed.quoted) is None:
            rows = list(itertools.islice(self._rows(table, tps), ROWS))
            quoted = placed.read(rows, len(tps), lambda sent: partition(topic, sent).partition, self._believed)
        if quoted is not None:
            return partition(topic, placing(text, quoted=quoted))
        if not any(map(self._is_active, tps)):
            return min(tps)
        raise ServiceUnavailable(f"table {table.name}: no event has shown yet which worker has a key")

    @property
    def _believed(self) -> bool | None:
        """Whether the topics that agents read have keys in JSON, or as they are; None where they differ."""
        read = {agent.channel for agent in self._app.agents.values() if isinstance(agent.channel, TopicT)}
        codecs = {topic.schema.key_serializer or self._app.conf.key_serializer for topic in read}
        return {"json": True, "raw": False}.get(codecs.pop()) if len(codecs) == 1 else None

    def _rows(self, table: Any, tps: Iterable[TP]) -> Iterator[tuple[bytes, int]]:
        databases, windowed = table.data._dbs, table.window is not None
        for tp in self._restored.intersection(tps):
            if (database := databases.get(tp.partition)) is not None:
                for key in itertools.islice(table.data._visible_keys(database), ROWS_EACH):
                    yield text_of(key, windowed=windowed), tp.partition

    def address(self, tp: TP, told: Mapping[TP, str]) -> URL:
        """The owner's address; `told` = by the last rebalance.  Raises KeyError if nobody can answer now."""
        own = str(self._app.conf.canonical_url)
        if self._is_active(tp):
            if tp not in self._restored or not self._is_member():
                raise KeyError(tp)
            return URL(own)
        generation, found = self._moved.get(tp, (None, None))
        if generation != self._generation:
            found = told.get(tp)
        if found is None or found == own:
            raise KeyError(tp)
        return URL(found)

    def distribution(self, told: Distribution) -> Distribution:
        """All routes in Faust's form; `told` = by the last rebalance."""
        generation = self._generation
        moved = {tp: address for tp, (then, address) in self._moved.items() if then == generation}
        if not moved:
            return told
        routes: dict[str, dict[str, list[int]]] = {address: {} for address in told}
        known = {TP(t, p) for topics in told.values() for t, partitions in topics.items() for p in partitions}
        for address, topics in told.items():
            for topic, partitions in topics.items():
                routes[address][topic] = [p for p in partitions if TP(topic, p) not in moved]
        for tp in sorted(known & moved.keys()):
            if (to := moved[tp]) is not None:
                routes.setdefault(to, {}).setdefault(tp.topic, []).append(tp.partition)
        return routes

    def taken(self, tps: Collection[TP]) -> None:
        """Note that this worker owns these partitions from now on, and has their state."""
        self._restored.update(tps)
        self._note(tps, self._generation, str(self._app.conf.canonical_url))

    def given(self, tps: Collection[TP]) -> None:
        """Note that this worker has given these partitions away."""
        self._restored.difference_update(tps)
        self._note(tps, self._generation, None)

    def moved(self, tps: Collection[TP], generation: int, target: WorkerId) -> None:
        """Note that another worker has taken these partitions over in this generation."""
        address = self.addresses.get(target)
        if address is not None and generation == self._generation:
            self._note([tp for tp in tps if not self._is_active(tp)], generation, address)

    def _note(self, tps: Iterable[TP], generation: int, address: str | None) -> None:
        self._moved.update((tp, (generation, address)) for tp in tps)

    def rebalancing(self) -> None:
        """A rebalance has begun, or its assignment has come.

        State that this worker had in the generation before is still complete if it keeps the partition.  If it missed a
        generation, another worker may have written it.
        """
        if self._generation not in (self._restored_in, self._restored_in + 1):
            self._restored.clear()
        self._restored = set(filter(self._is_active, self._restored))

    def stable(self, active: Collection[TP]) -> None:
        """The state of these partitions, all that this worker owns, is restored."""
        self._restored, self._restored_in = set(active), self._generation
        self._moved = {tp: move for tp, move in self._moved.items() if move[0] == self._restored_in}

    @property
    def _generation(self) -> int:
        return group_generation(self._app)

    def _is_member(self) -> bool:
        """False if the group may have given its partitions away while this process stood still."""
        fence = getattr(self._app._consumer, "fence", None)  # a worker that only reports has Faust's own consumer
        return fence is None or not fence.closed_now()
