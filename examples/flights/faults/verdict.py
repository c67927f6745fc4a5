"""What each fault cost, and whether that is within the promise; pure.

Promised: nothing is lost, ever.  Only the death of a worker may double anything: what it had done since its last
commit, so at most what its key groups did in one commit interval and the time of a commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flights.faults.campaign import Suffered
from flights.faults.cases import Fault
from flights.faults.history import Flown
from flights.wire import APP, EXTRACT, SUMS, Sums
from trimtab_models.messages.commands import Command, CommandKind
from trimtab_models.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.snapshot import Snapshot

COMMIT_TAKES_S = 0.25
STALL_S = 1.0
"""A flight that takes longer through the job was held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one case: flights lost and outputs doubled, how many may be, and how long (seconds from the kill on) flights
    were held up and the cluster was not steered.
    """

    suffered: Suffered
    lost: int
    duplicated: int
    allowed: int
    stalled_s: float
    unsteered_s: float

    @property
    def kept(self) -> bool:
        """Whether it is within the promise."""
        return self.lost == 0 and self.duplicated <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFaults:
    """The table `sums` against a recomputation: flights counted too often and too few times, and sums that are wrong
    although their number of flights is right.
    """

    checked: int
    over: int
    under: int
    other: int

    def kept(self, allowed: int) -> bool:
        """Whether it is within the promise: what a death may double, it may double in the table."""
        return self.checked > 0 and self.under == 0 and self.other == 0 and self.over <= allowed


def costs(
    suffered: Sequence[Suffered],
    flown: Iterable[Flown],
    snapshots: Sequence[Snapshot],
    commands: Sequence[Command],
    *,
    commit_s: float,
) -> list[Cost]:
    """A case answers for what was sent or doubled until the cluster was steered again, the last one for the rest."""
    rows = list(flown)
    found = []
    since = float("-inf")
    for place, case in enumerate(suffered):
        until = case.steered_at if place + 1 < len(suffered) else float("inf")
        sent = [row for row in rows if since < row.sent_at <= until]
        late = [row.counted_at[0] for row in sent if row.counted_at and row.counted_at[0] - row.sent_at > STALL_S]
        owned = owned_by(case.victim, case.at, snapshots, commands) if case.case.fault is Fault.WORKER else set()
        found.append(
            Cost(
                suffered=case,
                lost=sum(1 for row in sent if not row.counted_at),
                duplicated=sum(1 for row in rows for at in row.counted_at[1:] if since < at <= until),
                allowed=done_by(owned, rows, case.at - commit_s - COMMIT_TAKES_S, case.at),
                stalled_s=max(0.0, max((at for at in late if at > case.at), default=case.at) - case.at),
                unsteered_s=case.steered_at - case.at,
            )
        )
        since = until
    return found


def owned_by(worker: WorkerId, at: float, snapshots: Sequence[Snapshot], commands: Sequence[Command]) -> set[KeyGroup]:
    """What the worker may have owned just before: by the last window before, and what was moved to it since."""
    before = [row for row in snapshots if row.end_ms <= at * 1000]
    if not before:
        return set()
    last = before[-1]
    taken = (
        command.key_groups
        for command in commands
        if command.kind is CommandKind.RELEASE
        and command.target == worker
        and last.start_ms / 1000 <= command.issued_at <= at
    )
    return {row.key_group for row in last.key_groups if row.worker == worker}.union(*taken)


def done_by(owned: set[KeyGroup], flown: Iterable[Flown], start: float, end: float) -> int:
    """Events that these key groups did in [start, end]: each of them, done once more, makes one more output."""

    def did(operator: str, partition: int | None, times: tuple[float, ...]) -> bool:
        if partition is None or KeyGroup(AppId(APP), OperatorId(operator), partition) not in owned:
            return False
        return any(start <= at <= end for at in times)

    return sum(did(EXTRACT, row.partition, row.extracted_at) + did(SUMS, row.home, row.counted_at) for row in flown)


def table_faults(expected: Mapping[str, Sums], found: Mapping[str, Sums]) -> TableFaults:
    """The table as it should be, were every flight counted once, against the table as its changelog says it is."""
    over = under = other = 0
    for key in expected.keys() | found.keys():
        right, is_ = expected.get(key, Sums()), found.get(key, Sums())
        over += max(0, is_.flights - right.flights)
        under += max(0, right.flights - is_.flights)
        other += right.flights == is_.flights and right != is_
    return TableFaults(checked=len(expected), over=over, under=under, other=other)
