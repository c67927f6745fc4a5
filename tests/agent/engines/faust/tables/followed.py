"""A worker's tables as standbys see them: it owns partition 0, and may follow the others."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId

APP, SUMS = AppId("a"), OperatorId("sums")


def key_group(partition: int) -> KeyGroup:
    return KeyGroup(APP, SUMS, partition)


class Ownership:
    """Of one operator with so many partitions; `of_faust` = what Faust itself follows."""

    of_faust: frozenset[TP] = frozenset()

    def __init__(self, partitions: int = 2) -> None:
        self.operator = SimpleNamespace(id=SUMS, partitions=partitions)
        self.databases: dict[int, object] = {}

    def operators(self) -> dict[OperatorId, Any]:
        return {SUMS: self.operator}

    def key_group(self, operator: Any, partition: int) -> KeyGroup:
        return key_group(partition)

    def key_group_of(self, topic: str, partition: int) -> KeyGroup:
        return key_group(partition)

    def holds(self, key_group: KeyGroup) -> bool:
        return key_group.partition == 0

    def is_active(self, tp: TP) -> bool:
        return tp.partition == 0

    def followed_by_faust(self) -> frozenset[TP]:
        return self.of_faust

    def changelogs(self, key_groups: Iterable[KeyGroup]) -> set[TP]:
        return {TP("log", key_group.partition) for key_group in key_groups}

    def table(self, changelog: TP) -> Any:
        return Table(self.databases)


class Table:
    """It has its changelog up to offset 4; partition 3 is ahead of its changelog: the topic was made anew."""

    changelog_topic = SimpleNamespace(deleting=False)

    def __init__(self, databases: dict[int, object] | None = None) -> None:
        self.data = self
        self._dbs = {0: object(), 1: object()} if databases is None else databases

    def partition_path(self, partition: int) -> Path:
        return Path("nowhere", f"{partition}.db")

    def _open_for_partition(self, partition: int) -> object:
        return object()

    def persisted_offset(self, changelog: TP) -> int:
        return 99 if changelog.partition == 3 else 4


class Consumer:
    """Of a broker whose changelogs have the offsets 0 to 8."""

    async def earliest_offsets(self, *changelogs: TP) -> dict[TP, int]:
        return dict.fromkeys(changelogs, 0)

    async def highwaters(self, *changelogs: TP) -> dict[TP, int]:
        return dict.fromkeys(changelogs, 9)


class App:
    consumer = Consumer()
