"""Which apps' placements may be published in parts: those whose workers all read them so.  Pure.

A worker with a plug-in of before 0.2.0 follows only placements in one record.  It must not lose the placement, so a
single such worker is enough for one record.  To change to parts, every owner in the placement must have been seen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_controller.decider.observing.observe import placed_workers
from trimtab_controller.execution.events import ReadersSeen
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


@dataclass(slots=True)
class PlacementReaders:
    """What the workers have said.  `allowed` False: the configuration wants every placement in one record."""

    allowed: bool = True
    in_parts: dict[AppId, bool] = field(default_factory=dict)
    """Whether an app's placement may be in parts, as far as that is known."""
    older: dict[AppId, tuple[WorkerId, ...]] = field(default_factory=dict)
    """Per app, the workers that need one record."""
    _able: dict[AppId, frozenset[WorkerId]] = field(default_factory=dict)
    _told: dict[AppId, bool] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, placements: Mapping[AppId, Placement]) -> None:
        """Learn from a window."""
        rows: dict[AppId, list[NodeWindow]] = {}
        for row in snapshot.nodes:
            if row.app is not None and row.state is not WorkerState.AWAY:
                rows.setdefault(row.app, []).append(row)
        for app in self._able.keys() - rows.keys() - placements.keys():
            del self._able[app], self.in_parts[app], self.older[app]
            self._told.pop(app, None)
        for app, workers in rows.items():
            self._see_app(app, workers, placements.get(app))

    def news(self, placements: Mapping[AppId, Placement]) -> list[ReadersSeen]:
        """What has changed of `in_parts` since the last call; at first, since the placements were published."""
        published = {app: placement.part_size is not None for app, placement in placements.items()}
        found = {
            app: now for app, now in self.in_parts.items() if now != self._told.get(app, published.get(app, False))
        }
        self._told.update(found)
        return [ReadersSeen(in_parts=found)] if found else []

    def _see_app(self, app: AppId, rows: Iterable[NodeWindow], placement: Placement | None) -> None:
        older = tuple(row.worker for row in rows if not row.in_parts)
        able = self._able.get(app, frozenset()).union(row.worker for row in rows if row.in_parts).difference(older)
        self._able[app], self.older[app] = able, older
        if older or not self.allowed:
            self.in_parts[app] = False
        elif placement is None or placed_workers([placement]) <= able:
            self.in_parts[app] = True
        else:  # an owner has not been seen yet: the placement keeps its form
            self.in_parts[app] = placement.part_size is not None
