"""Whether moves keep the rules."""

from collections.abc import Mapping

from trimtab_controller.decider.observing.rule import names
from trimtab_controller.decider.observing.view import DemandView
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.wording import first_few


def broken_by(view: DemandView, moves: Mapping[int, WorkerId]) -> str:
    """The moves (row of the view -> target) that rules forbid, with these rules; empty if there are none."""
    if not view.rules:
        return ""
    places = {worker.id: place for place, worker in enumerate(view.workers)}
    found = []
    for row, target in moves.items():
        if by := view.places.against(row, places[target]):
            found.append(f"{view.owned[row].key_group} may not go to {target} by {names(by)}")
    return first_few(found) if found else ""
