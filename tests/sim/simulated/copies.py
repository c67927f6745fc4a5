"""Where the copies of a key group are after it has moved: read from the placements that are published."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.zoned import host_number, zone_of
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement

CALM_S = 120.0
"""After so long without a fault a controller knows which workers are there."""


def changed_rows(now: Placement, before: Placement | None) -> Iterator[tuple[KeyGroup, Owners, Owners]]:
    """The key groups whose rows differ from those of the placement before, with both rows."""
    for operator, rows in now.owners.items():
        known = before.owners.get(operator, ()) if before is not None else ()
        for partition, (row, old) in enumerate(zip_longest(rows, known, fillvalue=())):
            if row != old and partition < len(rows):
                yield KeyGroup(now.app, operator, partition), row, old


@dataclass(slots=True)
class CopyCheck:
    """Judges the moves of a calm cluster: none may take the only copy that the loss of a host, or zone, leaves.

    `running` = the workers that run, by the truth.  `judged` = moves so far that could have taken it.
    """

    running: Callable[[], set[WorkerId]] = set
    zoned: bool = False
    judged: int = 0

    def see_row(self, key_group: KeyGroup, row: Owners, before: Owners, *, calm: bool) -> None:
        """A row of a placement, and the one before."""
        if not calm or not row or not before or row[0] == before[0]:
            return
        self._judge(key_group, row, before, host_number, "host")
        if self.zoned:
            self._judge(key_group, row, before, zone_of, "zone")

    def _judge(
        self, key_group: KeyGroup, row: Owners, before: Owners, of: Callable[[WorkerId], object], what: str
    ) -> None:
        running, here = self.running(), of(row[0])
        had, has = ({each for each in found if each in running and of(each) != here} for found in (before, row))
        self.judged += bool(had) and of(before[0]) == here
        if had and not has:
            lost = ", ".join(sorted(had))
            raise Violation(f"copies: {key_group} moves to {row[0]}, and no other {what} has one: {lost} had")
