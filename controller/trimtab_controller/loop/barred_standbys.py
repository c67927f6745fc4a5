"""Which rules keep a worker from being a standby of a key group, and for whose sake.  Pure."""

from collections.abc import Iterator

from trimtab_controller.decider.observing.rule import is_about, spreads
from trimtab_controller.decider.observing.view import DemandView, Worker
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.rules import RuleKind


class BarredStandbys:
    """What the rules about one key group say of each worker; `row` = its owner and standbys now."""

    def __init__(self, view: DemandView, key_group: KeyGroup, row: Owners) -> None:
        self._rules = [
            rule
            for rule in view.rules
            if rule.kind is RuleKind.SPREAD or (rule.places_standbys and is_about(rule, key_group))
        ]
        self._taken = list(_taken(view, row)) if spreads(self._rules) else []

    def by(self, worker: Worker) -> str | None:
        """The rules against this worker, in words; None if there are none."""
        found: list[str] = []
        for rule in self._rules:
            if rule.kind is RuleKind.SPREAD:
                near = next((told for zone, who, told in self._taken if zone == worker.zone and who != worker.id), None)
                if near is not None:
                    found.append(f"rule {rule.name}: zone {worker.zone} has {near} already: {rule.reason}")
            elif not rule.allows(worker.id, worker.host, worker.zone):
                found.append(f"rule {rule.name}: {rule.reason}")
        return "; ".join(found) or None


def _taken(view: DemandView, row: Owners) -> Iterator[tuple[str, WorkerId, str]]:
    """The zones that take no standby more, and who is there: the owner first.

    Standbys may share a zone where there are more copies than zones; no standby is in the owner's where there is
    another one.
    """
    zones = {each.id: each.zone for each in view.all_workers}
    able = {each.zone for each in view.all_workers if not each.draining and each.zone is not None}
    if not row or len(able) < 2:
        return
    copies = 1 + max(view.standbys or 0, len(row) - 1)
    for who in row if copies <= len(able) else row[:1]:
        if (zone := zones.get(who)) is not None:
            yield zone, who, f"its {'owner' if who == row[0] else 'standby'} {who}"
