"""New standbys, which restore over the same links and slots as the targets of plans: when each is named.

A standby begins to restore as soon as the placement names it.  So its row waits here until every host concerned has a
slot, no hand-over to that host waits, the host's link is not full, and the bytes per second allow it.  Rows are named
in batches of key groups with the same new standbys, the largest first.

Workers tell how many of their standbys are not warm, but neither which nor at once.  So a standby holds its slot for as
long as the p90 of what restores cost says.  Nothing of this is journalled: a new leader's decider finds the gaps again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from trimtab_controller.execution.pace import RestoreRate
from trimtab_controller.execution.restore_costs import RestoreCosts, slots_of
from trimtab_controller.execution.state import ENDED, Execution, HandoverPhase
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup
from trimtab_protocol.messages.owner_rows import Owners

LONGEST_S = 600.0
"""How long a standby holds a slot at most: what its restore takes is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Rows to name together, each with the row before.  `lacking` = bytes that each host restores for them."""

    rows: Mapping[KeyGroup, tuple[Owners, Owners]]
    lacking: Mapping[HostId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """Standbys on a host that restore so many bytes, and hold a slot there until `until` (epoch seconds)."""

    host: HostId
    lacking_bytes: int
    until: float


class StandbyRestores:
    """The rows that wait, by app, and the standbys that restore now."""

    def __init__(self, costs: RestoreCosts, rate: RestoreRate) -> None:
        self._costs = costs
        self._rate = rate
        self._waiting: dict[AppId, list[_Batch]] = {}
        self._held_until: tuple[float, ...] = ()  # when the bytes per second allow the rows that wait for only that
        self.building: tuple[Building, ...] = ()

    def forget(self, app: AppId) -> None:
        """Name no row of the app any more."""
        self._waiting.pop(app, None)

    def want(
        self,
        step: Step,
        app: AppId,
        rows: Mapping[KeyGroup, Owners],
        lacking: Mapping[KeyGroup, Mapping[HostId, int]],
    ) -> None:
        """Take new rows in place of those of the app that still wait; `lacking` = bytes that each host restores."""
        together: dict[tuple[object, ...], list[KeyGroup]] = {}
        for key_group in rows:
            before = step.row(key_group)
            new = tuple(worker for worker in rows[key_group] if worker not in before)
            together.setdefault((*new, *sorted(lacking[key_group])), []).append(key_group)
        size, batches = step.limits.key_groups_per_handover, []
        for names in together.values():
            names.sort(key=lambda each: -sum(lacking[each].values()))
            for first in range(0, len(names), size):
                batch = names[first : first + size]
                sums: dict[HostId, int] = {}
                for host, count in ((host, count) for each in batch for host, count in lacking[each].items()):
                    sums[host] = sums.get(host, 0) + count
                batches.append(_Batch(rows={each: (step.row(each), rows[each]) for each in batch}, lacking=sums))
        self._waiting[app] = sorted(batches, key=lambda batch: -sum(batch.lacking.values()))

    @property
    def wake_at(self) -> float | None:
        """When the next slot becomes free, or the next restore may begin (epoch seconds), if a row waits."""
        times = [each.until for each in self.building] if self._waiting else []
        return min([*times, *self._held_until], default=None)

    def running(self, now: float) -> dict[HostId, list[float]]:
        """The seconds left of the standbys that restore now, by host."""
        self.building = tuple(each for each in self.building if each.until > now)
        found: dict[HostId, list[float]] = {}
        for each in self.building:
            found.setdefault(each.host, []).append(each.until - now)
        return found

    def name_due(self, step: Step, restoring: Mapping[HostId, int]) -> None:
        """Name the rows for which there is room now; `restoring` = hand-overs whose targets restore on each host."""
        self._held_until = ()
        if not self._waiting:
            return
        beside = {host: len(left) for host, left in self.running(step.now).items()}
        for host, count in restoring.items():
            beside[host] = beside.get(host, 0) + count
        awaited = _awaited(step.execution)
        moving = _moving(step.execution)
        most = self._most(step, {host for rows in self._waiting.values() for batch in rows for host in batch.lacking})
        for app, batches in list(self._waiting.items()):
            left = []
            for batch in batches:
                rows = {
                    each: row
                    for each, (before, row) in batch.rows.items()
                    if step.row(each) == before and each not in moving
                }
                if not rows:
                    continue  # decided on anew by the decider
                if any(host in awaited or beside.get(host, 0) >= most(host) for host in batch.lacking):
                    left.append(batch)
                    continue
                if (free_at := self._rate.free_at(batch.lacking)) > step.now:
                    left.append(batch)
                    self._held_until = (*self._held_until, free_at)
                    continue
                self._rate.take(step.now, batch.lacking)
                step.owners.update(rows)
                step.changed = True
                for host, size in batch.lacking.items():
                    beside[host] = beside.get(host, 0) + 1
                    self._begin(step.now, host, size, beside[host])
            if left:
                self._waiting[app] = left
            else:
                del self._waiting[app]

    def _most(self, step: Step, hosts: Iterable[HostId]) -> Callable[[HostId], int]:
        """How many restores each of these hosts runs at the same time; none where the foreground fills the link."""
        links, limit = self._costs.links, step.limits.handovers_per_host
        slots = {host: slots_of(links.cores.get(host), limit) for host in hosts}
        curves = self._costs.curves(slots, slots)
        planned = [row.recovery.slots for row in step.execution.in_flight if row.recovery is not None]

        def most(host: HostId) -> int:
            link = links.of(host)
            if link is not None and link.full:
                return 0
            of_plans = min((each[host] for each in planned if host in each), default=limit)
            return min(self._costs.at_once(host, slots[host], curves[host]), of_plans)

        return most

    def _begin(self, now: float, host: HostId, size: int, beside: int) -> None:
        factor = self._costs.curves([host], {host: beside})[host].high.at(beside)
        seconds = min(LONGEST_S, self._costs.unit_s * self._costs.size(size) * factor)
        self.building = (*self.building, Building(host=host, lacking_bytes=size, until=now + seconds))
        self._costs.links.restored(host, now + seconds)

    @property
    def waiting(self) -> dict[AppId, list[tuple[HostId, int]]]:
        """The bytes that rows which wait let hosts restore, by app."""
        return {
            app: [each for batch in batches for each in batch.lacking.items()] for app, batches in self._waiting.items()
        }

    @property
    def full_links(self) -> tuple[HostId, ...]:
        """The hosts on which standbys wait since the foreground fills their links."""
        hosts = {host for batches in self._waiting.values() for batch in batches for host in batch.lacking}
        return tuple(sorted(host for host in hosts if (link := self._costs.links.of(host)) is not None and link.full))


def _awaited(execution: Execution) -> Collection[HostId]:
    """The hosts to which a hand-over waits: it restores before any new standby."""
    return {
        each.target_host for row in execution.in_flight for each in row.handovers if each.phase is HandoverPhase.WAITING
    }


def _moving(execution: Execution) -> Collection[KeyGroup]:
    """The key groups of hand-overs that have not ended."""
    return {
        key_group
        for row in execution.in_flight
        for each in row.handovers
        if each.phase not in ENDED
        for key_group in each.key_groups
    }
