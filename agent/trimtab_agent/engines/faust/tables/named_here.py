"""The key groups that the placement names this worker for, kept up to date with each change of the placement."""

from trimtab_protocol.messages.names import OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import OwnerTable, Part
from trimtab_protocol.messages.placement import Placement

NO_TABLE = OwnerTable((), 1)


class NamedHere:
    """Looks only at the parts that have changed since the placement before."""

    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._seen: dict[OperatorId, OwnerTable] = {}
        self._named: dict[OperatorId, dict[int, tuple[int, ...]]] = {}
        """Per operator and part, the partitions that name this worker; parts without any are left out."""

    def follow(self, placement: Placement | None) -> dict[OperatorId, list[int]]:
        """Per operator, the partitions whose row names this worker, in any role."""
        tables = dict(placement.owners) if placement is not None else {}
        for operator in self._seen.keys() - tables.keys():
            del self._named[operator]
        for operator, table in tables.items():
            before = self._seen.get(operator, NO_TABLE)
            if table is not before:
                self._follow(operator, before, table)
        self._seen = tables
        return {operator: [each for part in named.values() for each in part] for operator, named in self._named.items()}

    def _follow(self, operator: OperatorId, before: OwnerTable, table: OwnerTable) -> None:
        same = before.size == table.size
        named = self._named.get(operator, {}) if same else {}
        old: tuple[Part, ...] = before.parts if same else ()
        for index, part in enumerate(table.parts):
            if index < len(old) and old[index] is part:
                continue
            first = index * table.size
            found = tuple(first + at for at, row in enumerate(part.rows) if self._worker in row)
            if found:
                named[index] = found
            else:
                named.pop(index, None)
        for index in range(len(table.parts), len(old)):
            named.pop(index, None)
        self._named[operator] = named
