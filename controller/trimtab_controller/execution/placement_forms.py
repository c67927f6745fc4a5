"""In which form placements are published: in one record, or in parts, where all workers of the app read parts."""

from collections.abc import Mapping
from dataclasses import replace

from trimtab_controller.execution.state import Execution
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId


class PlacementForms:
    """The form of each app's placement.  `key_groups_per_part` = size of a part; 0: none is published in parts."""

    def __init__(self, key_groups_per_part: int) -> None:
        self._size = key_groups_per_part
        self._in_parts: dict[AppId, bool] = {}

    def part_size(self, execution: Execution, app: AppId, key_groups: int) -> int | None:
        """Key groups per part of the app's placement, which has so many; None: it is published in one record."""
        previous = execution.placements.get(app)
        in_parts = self._in_parts.get(app, previous is not None and previous.part_size is not None)
        return self._size if in_parts and self._size and key_groups > self._size else None

    def see_readers(self, step: Step, in_parts: Mapping[AppId, bool]) -> None:
        """Publish placements again whose workers need another form now.  Owners and standbys stay as they are."""
        self._in_parts.update(in_parts)
        placements = step.execution.placements
        for app in in_parts.keys() & placements.keys():
            placement = placements[app]
            part_size = self.part_size(step.execution, app, sum(map(len, placement.owners.values())))
            if part_size != placement.part_size:
                step.adopted[app] = replace(placement, epoch=step.epoch, part_size=part_size)
                step.changed = True


def publish_again(step: Step) -> None:
    """Publish all placements whole, under a new epoch: nothing is known to be on the topic."""
    step.afresh = step.changed = True
    for app, placement in step.execution.placements.items():
        step.adopted[app] = replace(placement, epoch=step.epoch)
