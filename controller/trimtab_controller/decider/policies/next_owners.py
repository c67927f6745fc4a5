"""Next owners for orphans: a key group without an owner is an outage.

When the consumer group notices that the owner is gone (after the session time-out of the app), it gives each key group
to the first worker in its row that is a member; where there is none, to the member with the fewest key groups.  So the
controller adds a worker to the row of each orphan as soon as the owner has been away at the end of WINDOWS windows: an
agent that restarts is back before.  The worker that was added begins to restore, and it is the next owner.  If the old
one comes back first, it keeps its key groups.  This is a plan (`PlanReason.LOSS`), whose restores are scheduled.

Such a plan grows while it is in flight: with orphans of a worker that is lost meanwhile, and with those whose next
owner is.  When a worker joins, what has not begun to restore is placed anew.  Of a single one DynDLOn decides.

The workers are chosen by the greedy matching of the Elastic Allocator (`trimtab_models.elastic`), from the demand of
each key group, what is asked of each worker, and the memory, disks and links of the hosts.  Where it refuses a key
group, since no worker is light, the key group goes where it does least harm, even beyond the limit of a disk: a key
group without an owner is an outage.  This is then a concern.  DynDL may choose other targets within the band
(`orphan_placing.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from trimtab_controller.decider.memory.orphans import Orphaned, Orphans
from trimtab_controller.decider.policies.orphan_placing import MOST_SCHEDULED, OPERATIONS, PlacedOrphans, place_orphans
from trimtab_controller.decider.policies.restores import with_restores
from trimtab_controller.decider.values.decision import NextOwners, PlanEnded, Planned, StandbysPlaced
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.copies import state_held
from trimtab_controller.decider.window.resources import with_less_disk
from trimtab_controller.decider.window.restores import what_restores
from trimtab_controller.decider.window.rules import with_priorities
from trimtab_controller.decider.window.view import AppView, SmoothedView
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import ENDED, Execution, Round, next_owned
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_models.elastic.matching import HEAVY_FROM, NodeLevel, level_of
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.wording import first_few

SOONER_S = 0.1


def next_owners(
    orphans: Orphans, execution: Execution, learned: LearnedRestores, promised: Mapping[HostId, float], band: float
) -> Planned | StandbysPlaced | PlanEnded | None:
    """Next owners for the first app with orphans that has no plan in flight, or one that takes more.

    Any other plan of the app ends early for them.  `promised` = bytes on the disk of each host that standbys are about
    to write.  `band`: how far a worker may get from the mean use for the sake of restores (pp).
    """
    for app, (seen, orphaned) in sorted(orphans.found.items()):  # a list: what leads to nothing is taken out
        placement = execution.placements.get(app)
        running = execution.rounds[app] if execution.busy(app) else None
        if placement is None or (running is not None and not running.takes_more):
            if placement is not None and running is not None and (ended := _ended(orphans, running, seen, orphaned)):
                return ended
            continue
        settled, waiting = _targets(orphans, seen, running)
        view = with_less_disk(seen, _brought(running, settled, promised))
        orphaned = orphaned.given(settled)
        if not len(orphaned.table):
            continue
        newest, *before = orphans.windows
        held = state_held(newest, app, placement, before)
        restores = what_restores(newest, execution, learned, held, band)
        placed = place_orphans(view, orphaned, orphans.hosts, orphans.asked, operations=OPERATIONS, restores=restores)
        if placed is None:
            continue
        crowd = _concern(app, orphaned, placed) if placed.forced else None
        chosen = NextOwners(offered=frozenset(view.hosts), lost=frozenset(orphaned.owners), crowd=crowd)
        changed = (each for each, target in placed.targets.items() if waiting.get(each) != target)
        rows = {each: placement.of(each.operator, each.partition) for each in changed}
        lost = {each: row for each, row in rows.items() if row[0] in orphaned.owners}  # else adopted meanwhile
        too_many = running is not None and len(lost) + len(settled) + len(waiting) > MOST_SCHEDULED
        if too_many or not lost:
            orphans.chosen(app, chosen)  # nothing new, or when the plan in flight has ended: not sought again before
            continue
        if len(lost) > MOST_SCHEDULED:
            named = {each: next_owned(row, placed.targets[each]) for each, row in lost.items()}
            return StandbysPlaced(app=app, rows=named, detail=_described(orphaned, placed), next_owners=chosen)
        sources = {each: row[0] for each, row in lost.items()}
        plan = with_priorities(view, _plan(view, orphaned, placed, sources))
        if running is not None:
            plan = replace(plan, detail=f"{plan.detail}; added to plan {running.plan}")
        return with_restores(Planned(plan=plan, next_owners=chosen), newest, held)
    return None


def _ended(orphans: Orphans, running: Round, view: AppView, orphaned: Orphaned) -> PlanEnded | None:
    """The early end of a plan that next owners would have to wait for."""
    if running.lost or running.stopped is not None or all(worker.draining for worker in view.workers):
        return None
    ends = {end for each in running.handovers for end in (each.source, each.target, *chain(*each.previous))}
    detail = f"ended early, since {first_few(orphaned.owners)} is away and {len(orphaned.table)} key groups need"
    lost = frozenset(ends - orphans.here)
    return PlanEnded(app=view.app, lost=lost, reason=f"{detail} a next owner", next_owners=NextOwners())


def _targets(
    orphans: Orphans, view: SmoothedView, running: Round | None
) -> tuple[dict[KeyGroup, WorkerId], dict[KeyGroup, WorkerId]]:
    """The targets that the plan in flight keeps, and those that may still change: a worker has joined."""
    settled, waiting = dict[KeyGroup, WorkerId](), dict[KeyGroup, WorkerId]()
    joined = bool(view.hosts.keys() - orphans.offered.get(view.app, view.hosts.keys()))
    for handover in running.handovers if running is not None else ():
        if handover.phase not in ENDED and handover.target in orphans.here:
            found = waiting if joined and not handover.attempt else settled
            found.update(dict.fromkeys(handover.key_groups, handover.target))
    return settled, waiting


def _brought(
    running: Round | None, settled: Mapping[KeyGroup, WorkerId], promised: Mapping[HostId, float]
) -> dict[HostId, float]:
    """Bytes on the disk of each host that are promised, or that targets which stay are about to write."""
    found = dict(promised)
    for handover in running.handovers if running is not None else ():
        if handover.phase not in ENDED and handover.key_groups[0] in settled:
            found[handover.target_host] = found.get(handover.target_host, 0.0) + handover.to_restore()
    return found


def _plan(view: SmoothedView, orphaned: Orphaned, placed: PlacedOrphans, sources: Mapping[KeyGroup, WorkerId]) -> Plan:
    """The plan for these orphans and what they have lost, those with the highest demand first."""
    table = orphaned.table
    found = (table[place] for place in np.argsort(-table.load, kind="stable").tolist())
    rows = [row for row in found if row.key_group in sources]
    added: defaultdict[WorkerId, float] = defaultdict(float)
    for row in rows:
        added[placed.targets[row.key_group]] += row.load
    return Plan(
        app=view.app,
        reason=PlanReason.LOSS,
        detail=_described(orphaned, placed),
        moves=tuple(
            Move(
                key_group=row.key_group,
                source=sources[row.key_group],
                target=placed.targets[row.key_group],
                state_bytes=row.state_bytes,
            )
            for row in rows
        ),
        hosts=view.hosts,
        before=_load_distance(view, {}),
        planned=_load_distance(view, added),
        lower_bound=0.0,
        status="feasible",
    )


def _load_distance(view: SmoothedView, added: Mapping[WorkerId, float]) -> float:
    """The load distance of the workers that stay, with these loads besides (pp)."""
    loads = view.owned.loads_of_workers()
    kept = [worker for worker in view.workers if not worker.draining]
    sums = {worker.id: loads.get(worker.id, 0.0) + added.get(worker.id, 0.0) for worker in kept}
    mean = (sum(loads.values()) + sum(added.values())) / sum(worker.capacity for worker in kept)
    return max(abs(sums[worker.id] / worker.capacity - mean) for worker in kept)


def _described(orphaned: Orphaned, placed: PlacedOrphans) -> str:
    counts = Counter(placed.targets.values())
    given = (f"{worker} {counts[worker]} ({busy:.0f} %)" for worker, busy in sorted(placed.busy_pct.items()))
    left = len(orphaned.table) - len(placed.targets)
    return (
        f"{first_few(orphaned.owners)} is away and {len(orphaned.table)} of its key groups have no standby that runs: "
        f"the Elastic Allocator names their next owners, {first_few(given, len(counts))}"
        + _sooner(placed)
        + (f"; {left} follow" if left else "")
        + (f"; {_crowd(placed)}" if placed.forced else "")
    )


def _sooner(placed: PlacedOrphans) -> str:
    """What DynDL's own targets bring, in words; empty if that is less than a tenth of a second."""
    found = placed.chosen
    if found is None or found.given_s - found.seconds < SOONER_S:
        return ""
    return (
        f" (targets by DynDL: warm in {found.seconds:.1f} s and not {found.given_s:.1f} s, "
        f"bound {found.lower_bound_s:.1f} s)"
    )


def _crowd(placed: PlacedOrphans) -> str:
    return (
        f"no worker is light or stays below {HEAVY_FROM:.0f} % with {len(placed.forced)} of them, such as "
        f"{placed.forced[0]}, so they go where they do least harm"
    )


def _concern(app: AppId, orphaned: Orphaned, placed: PlacedOrphans) -> Concern:
    heavy = {worker: busy for worker, busy in placed.busy_pct.items() if level_of(busy) is NodeLevel.HEAVY}
    said = first_few((f"{worker} {busy:.0f} %" for worker, busy in sorted(heavy.items())), len(heavy))
    detail = f"after the loss of {first_few(orphaned.owners)}: {_crowd(placed)}; then used: {said}"
    return Concern(kind=ConcernKind.ORPHANS_CROWD, app=app, workers=tuple(sorted(heavy)), detail=detail)
