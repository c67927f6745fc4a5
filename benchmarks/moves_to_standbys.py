"""Measures how much state a plan's targets have to restore, with targets by load alone and with standbys preferred.

    python -m benchmarks.moves_to_standbys [--seeds 10]

Every app has unequal loads and states (log-normal), and one standby per key group as the controller places them (N-1).
Then one worker is drained, with these standbys or without any, or the loads of a fifth of the key groups double.
Decider and solver are the real ones.  Printed are medians over the seeds: the share of the moved state that its target
does not have, the most that one host has to restore (MB), and the load distance that the plan leads to.
"""

import argparse
import statistics
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.memory.standby_choice import Following
from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.restores import onto_copies
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.execution.state import placement_of
from trimtab_controller.plan import PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_controller.solver.balance import answer
from trimtab_models.standbys.problem import StandbyBudget
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement

APP, OPERATOR = AppId("app"), OperatorId("sums")
SIZES = ((6, 96), (20, 400), (60, 1_200))
"""Workers and key groups."""
SOLVER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan: share of the moved state to restore, the most that a host has to restore (MB), load distance (pp)."""

    moves: int
    restored: float
    most: float
    load_distance: float


def balanced(workers: int, key_groups: int, seed: int) -> tuple[PlannableView, Placement]:
    """An app at 50 % of its workers, and its placement with standbys."""
    random = np.random.default_rng(seed)
    loads = random.lognormal(0.0, 0.7, key_groups)
    loads *= 50.0 * workers / loads.sum()
    sizes = (1e7 * random.lognormal(0.0, 1.0, key_groups)).astype(np.int64).tolist()
    filled = [0.0] * workers
    rows = []
    for place in np.argsort(-loads).tolist():
        owner = int(np.argmin(filled))
        filled[owner] += loads[place]
        rows.append((place, owner))
    names = [WorkerId(f"w{number}") for number in range(workers)]
    view = PlannableView(
        app=APP,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in names),
        key_groups=[
            Owned(
                key_group=KeyGroup(APP, OPERATOR, place),
                owner=names[owner],
                load=float(loads[place]),
                state_bytes=sizes[place],
            )
            for place, owner in sorted(rows)
        ],
        flows={},
        standbys=1,
    )
    bare = placement_of("c", APP, Epoch(1, 1), view.owners, None)
    return view, bare.changed(Epoch(1, 2), Following.of(view, bare).choose(view, 1, StandbyBudget()).rows)


def drained(view: PlannableView) -> PlannableView:
    """The first worker is to be emptied."""
    first, *others = view.workers
    return replace(view, workers=(replace(first, draining=True), *others))


def shifted(view: PlannableView, seed: int) -> PlannableView:
    """The loads of a fifth of the key groups have doubled."""
    chosen = np.random.default_rng(seed).random(len(view.owned)) < 0.2
    return replace(view, key_groups=view.owned.with_load(np.where(chosen, 2.0, 1.0) * view.owned.load))


def measured(view: PlannableView, placement: Placement, settings: Settings) -> tuple[Row, Row]:
    """The plan as the solver makes it, and with standbys preferred."""
    found = answer(question_of(view, settings, SOLVER_S))
    if not isinstance(found, Answer):
        raise RuntimeError(f"no plan: {found.reason}")
    draining = bool(view.draining)
    reason = PlanReason.DRAIN if draining else PlanReason.LOAD_DISTANCE
    wanted = SolveWanted(view=view, reason=reason, detail="", balancing=not draining)
    return row_of(view, placement, found), row_of(
        view, placement, onto_copies(wanted, found, Restores(held=Held(placement=placement)), settings)
    )


def row_of(view: PlannableView, placement: Placement, found: Answer) -> Row:
    """What the plan costs."""
    moved = 0
    restored: Counter[int] = Counter()
    for place, target in found.moves:
        row = view.owned[place]
        size = row.state_bytes or 0
        moved += size
        warm = view.workers[target].id in placement.of(OPERATOR, row.key_group.partition)[1:]
        restored[target] += 0 if warm else size
    return Row(
        moves=len(found.moves),
        restored=restored.total() / max(1, moved),
        most=max(restored.values(), default=0) / 1e6,
        load_distance=found.load_distance,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    head = "workers, key groups, what      moves   restored: by load, standbys preferred"
    print(f"{head}   most on a host (MB)   load distance (pp)")
    for workers, key_groups in SIZES:
        settings = Settings(max_migrations=key_groups)
        apps = [balanced(workers, key_groups, seed) for seed in seeds]
        cases = {
            "drain": [measured(drained(view), placement, settings) for view, placement in apps],
            "drain, no standbys": [
                measured(drained(view), placement_of("c", APP, Epoch(1, 3), view.owners, None), settings)
                for view, placement in apps
            ],
            "shift": [
                measured(shifted(view, seed), placement, settings)
                for seed, (view, placement) in zip(seeds, apps, strict=True)
            ],
        }
        for what, rows in cases.items():
            by_load, preferred = zip(*rows, strict=True)
            figures = [
                statistics.median(getattr(row, name) for row in side)
                for name in ("restored", "most", "load_distance")
                for side in (by_load, preferred)
            ]
            moves = statistics.median(row.moves for row in by_load)
            print(
                f"{workers:4} {key_groups:6} {what:18} {moves:6.0f} {figures[0]:14.0%} {figures[1]:14.0%} "
                f"{figures[2]:20.0f} -> {figures[3]:3.0f} {figures[4]:16.2f} -> {figures[5]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
