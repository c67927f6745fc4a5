"""Which rules keep a worker from being a standby of a key group, and for whose sake.  Pure."""

from collections.abc import Iterator

from trimtab_controller.decider.observing.view import AppView, Worker
from trimtab_controller.decider.rules.rule import Rule, RuleKind, is_about
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners


def no_standby(view: AppView, key_group: KeyGroup, worker: Worker, row: Owners) -> str | None:
    """The rules against this worker, in words; None if there are none.  `row` = owner and standbys now."""
    found: list[str] = []
    for rule in view.rules:
        if rule.kind is RuleKind.SPREAD:
            near = next(_in_its_zone(view, worker, row), None)
            if near is not None:
                found.append(f"rule {rule.name}: zone {worker.zone} has {near} already: {rule.reason}")
        elif _keeps_off(rule, key_group, worker):
            found.append(f"rule {rule.name}: {rule.reason}")
    return "; ".join(found) or None


def _keeps_off(rule: Rule, key_group: KeyGroup, worker: Worker) -> bool:
    return rule.places_standbys and is_about(rule, key_group) and not rule.allows(worker.id, worker.host, worker.zone)


def _in_its_zone(view: AppView, worker: Worker, row: Owners) -> Iterator[str]:
    """The owner in the zone of this worker, or the standby there that stands in its way.

    Standbys may share a zone where there are more copies than zones; no standby is in the owner's where there is
    another one.
    """
    zones = {each.id: each.zone for each in view.all_workers}
    able = {each.zone for each in view.all_workers if not each.draining and each.zone is not None}
    if worker.zone is None or not row or len(able) < 2:
        return
    if zones.get(row[0]) == worker.zone:
        yield f"its owner {row[0]}"
    copies = 1 + max(view.standbys or 0, len(row) - 1)
    if copies <= len(able):
        yield from (f"its standby {each}" for each in _others(row, worker.id) if zones.get(each) == worker.zone)


def _others(row: Owners, worker: WorkerId) -> Iterator[WorkerId]:
    yield from (each for each in row[1:] if each != worker)
