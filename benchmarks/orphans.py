"""Next owners of a lost worker's key groups: the controller's matching beside the group's rule, which counts them.

    PYTHONPATH=. python benchmarks/orphans.py [--seeds N]

One of N equal workers is lost, and no standby runs.  Loads follow a Zipf law with exponent 0.6, in an order drawn with
the seed; the survivors are balanced before.  Shown is the highest use of a survivor after it, in percent of its
capacity, and the CPU time of the decision: medians over the seeds.  The last case has more orphans than one decision
places; the time is that of the first decision.
"""

import argparse
import statistics
import time

import numpy as np

from benchmarks.played import owned_table, workers_alone
from trimtab_agent.engines.faust.group.placing import place
from trimtab_controller.decider.memory.hosts import HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.policies.orphan_placing import OPERATIONS, place_orphans
from trimtab_controller.decider.window.view import PlannableView
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId

APP, OPERATOR = AppId("app"), OperatorId("sums")
CASES = ((4, 64), (10, 1_000), (10, 3_000), (100, 10_000), (20, 2_000_000))
"""(workers, key groups); the last one is beyond the product's limit and stands for 100,000 orphans."""
MEAN_PCT = 50.0


def measure(workers: int, key_groups: int, seed: int) -> tuple[int, float, float, float]:
    """Orphans, highest use by the matching and by number, and CPU seconds."""
    random = np.random.default_rng(seed)
    load = random.permutation(1.0 / np.arange(1, key_groups + 1) ** 0.6)
    load *= MEAN_PCT * workers / load.sum()
    owner = np.empty(key_groups, np.int64)
    owner[np.argsort(-load, kind="stable")] = np.arange(key_groups) % workers
    names = tuple(WorkerId(f"w{place}") for place in range(workers))
    lost = owner == workers - 1
    left, gone = np.flatnonzero(~lost), np.flatnonzero(lost)
    size = np.full(key_groups, 1_000_000)
    kept = owned_table(APP, OPERATOR, names[:-1], left, owner[left], load[left], size[left])
    view = PlannableView(app=APP, start_s=0.0, end_s=10.0, workers=workers_alone(names[:-1]), key_groups=kept, flows={})
    orphans = owned_table(APP, OPERATOR, names[-1:], gone, np.zeros(len(gone), np.int64), load[gone], size[gone])
    before = np.bincount(owner[~lost], load[~lost], workers - 1)

    began = time.process_time()
    found = place_orphans(
        view, Orphaned(table=orphans, owners=names[-1:], inherited={}, state={}), HostsSeen(), {}, operations=OPERATIONS
    )
    seconds = time.process_time() - began
    assert found is not None
    ours = before.copy()
    for key_group, target in found.targets.items():
        ours[names.index(target)] += load[key_group.partition]
    counted = before.copy()
    if key_groups <= 10_000:
        stay = {int(each): names[owner[each]] for each in np.flatnonzero(~lost)}
        given = place([], partitions=key_groups, previous=stay, members=set(names[:-1]))
        for each in np.flatnonzero(lost).tolist():
            counted[names.index(WorkerId(given[each][0]))] += load[each]
    return len(orphans), float(ours.max()), float(counted.max()), seconds


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    print("workers  key groups  orphans  highest use: matching   by number    decision")
    for workers, key_groups in CASES:
        rows = [measure(workers, key_groups, seed) for seed in seeds]
        orphans = rows[0][0]
        ours, counted, seconds = (statistics.median(row[place] for row in rows) for place in (1, 2, 3))
        by_number = f"{counted:9.1f} %" if key_groups <= 10_000 else "          -"
        print(f"{workers:7} {key_groups:11,} {orphans:8,} {ours:20.1f} % {by_number} {1000 * seconds:8.2f} ms")


if __name__ == "__main__":
    main()
