"""Reads from Faust's bookkeeping which key groups this worker owns, and changes that in place.

A change is valid inside one generation.  The next rebalance rebuilds the bookkeeping from the leader's assignment,
which follows the placement.  Everything runs on the event loop, and no function here awaits, so other tasks never see
a half-done change.
"""

from collections.abc import Collection, Iterable
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.group.operators import AppOperator, Layout
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId


class Ownership:
    """Key groups of one app on this worker."""

    def __init__(self, app: Any, app_id: AppId) -> None:
        self._app = app
        self._app_id = app_id
        self._operators: dict[OperatorId, AppOperator] = {}
        self._by_topic: dict[str, AppOperator] = {}
        self._missing: frozenset[str] = frozenset()

    def learn(self, layout: Layout) -> None:
        """Derive the operators from the partition counts in the consumer's metadata.  Raises MixedPartitions."""
        found = layout.operators(self._app.consumer.thread.partition_count)
        self._operators = {operator.id: operator for operator in found}
        self._by_topic = {topic: operator for operator in found for topic in operator.topics}
        self._missing = (layout.sources | layout.changelogs) - self._by_topic.keys()

    def operators(self) -> dict[OperatorId, AppOperator]:
        """The operators by id; empty until `learn`."""
        return self._operators

    @property
    def missing(self) -> frozenset[str]:
        """Topics of the app that the broker did not know at the last rebalance.  Their key groups have no owner."""
        return self._missing

    def key_group_of(self, topic: str, partition: int) -> KeyGroup | None:
        """The key group of a partition; None when the topic belongs to no operator."""
        operator = self._by_topic.get(topic)
        return None if operator is None else self.key_group(operator, partition)

    def key_group(self, operator: AppOperator, partition: int) -> KeyGroup:
        """The key group of this partition."""
        return KeyGroup(self._app_id, operator.id, partition)

    def sources(self, key_groups: Iterable[KeyGroup]) -> set[TP]:
        """Source partitions of these key groups."""
        return {TP(topic, k.partition) for k in key_groups for topic in self._operators[k.operator].sources}

    def changelogs(self, key_groups: Iterable[KeyGroup]) -> set[TP]:
        """Changelog partitions of these key groups."""
        return {TP(topic, k.partition) for k in key_groups for topic in self._operators[k.operator].changelogs}

    def known(self, key_groups: Iterable[KeyGroup]) -> bool:
        """Whether all of these are key groups of this app."""
        known = self._operators
        return all(k.operator in known and k.partition < known[k.operator].partitions for k in key_groups)

    def owns(self, key_group: KeyGroup) -> bool:
        """Whether this worker owns all partitions of the key group.

        A worker that owns only a part processes that part, but cannot give the key group away.
        """
        operator = self._operators.get(key_group.operator)
        return operator is not None and all(self.is_active(TP(topic, key_group.partition)) for topic in operator.topics)

    def holds(self, key_group: KeyGroup) -> bool:
        """Whether this worker owns any partition of the key group.

        A leader that runs another version of the app may leave new topics unassigned.
        """
        operator = self._operators.get(key_group.operator)
        return operator is not None and any(self.is_active(TP(topic, key_group.partition)) for topic in operator.topics)

    def is_active(self, tp: TP) -> bool:
        """Whether Faust's bookkeeping says that this worker processes and writes the partition."""
        return tp in self._app.assignor._active_tps

    def followed_by_faust(self) -> frozenset[TP]:
        """Changelog partitions that the group's leader assigned to this worker as standbys; a steering one has none."""
        return frozenset(self._app.assignor.assigned_standbys())

    def owned(self) -> frozenset[KeyGroup]:
        """All key groups that this worker owns now."""
        active = self._app.assignor._active_tps
        found = {self.key_group_of(tp.topic, tp.partition) for tp in active if tp.topic in self._by_topic}
        return frozenset(each for each in found if each is not None and self.known([each]) and self.owns(each))

    def table(self, changelog: TP) -> Any:
        """The table of a changelog partition."""
        return self._app.tables._changelogs[changelog.topic]

    def own(self, key_groups: Collection[KeyGroup]) -> None:
        """Mark these key groups as owned everywhere in Faust's bookkeeping."""
        sources, changelogs = self.sources(key_groups), self.changelogs(key_groups)
        self._assign(sources | changelogs, own=True)
        self._app.assignor.routes.taken(sources | changelogs)
        recovery = self._app.tables.recovery
        for tp in changelogs:
            table = self.table(tp)
            recovery.revoke(tp)
            recovery.tp_to_table[tp] = table
            recovery.active_tps.add(tp)
            recovery.actives_for_table[table].add(tp)
        self._deliver(sources)

    def own_topics(self, tps: set[TP]) -> None:
        """Mark these partitions of Faust's own topics as owned."""
        self._assign(tps, own=True)
        self._deliver(tps)

    def withhold(self, tps: Collection[TP]) -> None:
        """Let the leader's assignment, just adopted, not count for these partitions before they are taken over."""
        assignor = self._app.assignor
        actives = assignor._assignment.actives
        for topic in {tp.topic for tp in tps}:
            actives[topic] = [each for each in actives.get(topic, ()) if TP(topic, each) not in tps]
        assignor._active_tps = assignor._assignment.active_tps

    def _deliver(self, tps: set[TP]) -> None:
        conductor = self._app.topics
        conductor._update_tp_index(tps)
        for tp in tps:
            conductor._tp_to_callback[tp] = conductor._build_handler(tp, conductor._tp_index[tp])

    def disown(self, key_groups: Collection[KeyGroup]) -> None:
        """Remove these key groups everywhere from Faust's bookkeeping."""
        sources, changelogs = self.sources(key_groups), self.changelogs(key_groups)
        self._assign(sources | changelogs, own=False)
        self._app.assignor.routes.given(sources | changelogs)
        recovery = self._app.tables.recovery
        for tp in changelogs:
            recovery.revoke(tp)
            recovery.active_tps.discard(tp)
            recovery.actives_for_table[self.table(tp)].discard(tp)
        conductor = self._app.topics
        for tp in sources:
            conductor._tp_index.pop(tp, None)
            conductor._tp_to_callback.pop(tp, None)

    def moved(self, key_groups: Collection[KeyGroup], generation: int, target: WorkerId) -> None:
        """Send requests for these key groups to the worker that has taken them over in this generation."""
        self._app.assignor.routes.moved(self.sources(key_groups) | self.changelogs(key_groups), generation, target)

    def restored_to(self, changelog: TP, offset: int) -> None:
        """Note that the local table has the changelog up to this offset, so nothing is left to recover."""
        recovery = self._app.tables.recovery
        recovery.active_offsets[changelog] = recovery.active_highwaters[changelog] = offset

    def _assign(self, tps: set[TP], *, own: bool) -> None:
        """Update the assignor (used by `is_active()`, table iteration and the next JoinGroup) and the app."""
        app, assignor = self._app, self._app.assignor
        actives = assignor._assignment.actives
        for topic in {tp.topic for tp in tps}:
            changed = {tp.partition for tp in tps if tp.topic == topic}
            held = set(actives.get(topic, ()))
            actives[topic] = sorted(held | changed if own else held - changed)
        assignor._active_tps = assignor._assignment.active_tps
        app._assignment = app._assignment | tps if own else app._assignment - tps
        app.unassigned = not app._assignment
