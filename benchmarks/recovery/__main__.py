"""Measures what a crash costs: kill -9 of each worker in turn, beside stock Faust in the same run.

    python -m benchmarks.recovery [--records 200000] [--kinds stock,planned] [--workers 3] [--kills 3] [--unequal]

A run has a fresh broker, a changelog of `--records` records, workers, and inputs at a constant rate, of which a
partition gets 1 to 4 parts.  When every partition has what the kind says, one worker after the other is killed and
started again.  Kinds: `stock` is Faust with `table_standby_replicas=1`; `planned` is the same app with the plug-in and
the standbys that the controller plans; `cold` has the plug-in, no standbys and no copies of state on disks; `copies`
has no standbys either, but former ones have copies on their disks.  `--unequal`: states from 1 to 20.

For the killed worker's partitions it measures the seconds from the kill to the first event that another worker
processes (median partition, and the last one); for all others the longest pause; the records that a survivor had to
restore at most; and the share of the inputs that the busiest survivor has then, beside the plan.  All figures include
the session time-out of the group, which is the same for all kinds.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.recovery.rig import LARGEST, SESSION_S, Crash, Job, Kind, rig


def run(job: Job, kills: int, folder: Path) -> list[Crash]:
    """Kill so many workers, one after the other."""
    crashes = []
    with rig(job, folder) as made:
        for place, worker in enumerate(job.names[:kills]):
            if place:
                made.start(job.names[place - 1])
                made.wait_until_ready()
            found = made.crash(worker)
            crashes.append(found)
            print(f"{job.kind:8} kill -9 {worker}: {found.partitions} partitions, {describe(found)}", flush=True)
    return crashes


def describe(found: Crash) -> str:
    """One line."""
    planned = "" if found.planned is None else f" (planned {found.planned:.0%})"
    return (
        f"median {found.median_s:5.1f} s, last {found.last_s:5.1f} s; others paused {found.others_s:5.1f} s; "
        f"at most {found.records} records restored; the busiest has {found.measured:.0%}{planned}"
    )


def middle(crashes: list[Crash]) -> Crash:
    """The medians of all figures."""
    plans = [row.planned for row in crashes if row.planned is not None]
    return Crash(
        partitions=round(median(row.partitions for row in crashes)),
        median_s=median(row.median_s for row in crashes),
        last_s=median(row.last_s for row in crashes),
        others_s=median(row.others_s for row in crashes),
        records=round(median(row.records for row in crashes)),
        planned=median(plans) if plans else None,
        measured=median(row.measured for row in crashes),
    )


def main() -> None:
    """Run all kinds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kinds", default="stock,planned", help="of " + ", ".join(Kind))
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3, help="workers that are killed, at most all")
    parser.add_argument("--unequal", action="store_true", help=f"states from 1 to {LARGEST}")
    parser.add_argument("--folder", type=Path, help="keep logs here")
    given = parser.parse_args()
    jobs = [
        Job(kind=Kind(kind), workers=given.workers, records=given.records, unequal=given.unequal)
        for kind in given.kinds.split(",")
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        found = {job.kind: run(job, given.kills, folder / job.kind) for job in jobs}
    print(f"medians of {given.kills} kills, {given.workers} workers, {given.records} records, session {SESSION_S:g} s")
    for kind, crashes in found.items():
        print(f"{kind:8} {describe(middle(crashes))}")


if __name__ == "__main__":
    main()
