"""Moves for balance that wait for a peak to pass, and what the same controller does without a forecast.

    python -m benchmarks.held_moves [--seeds 2]
    python -m benchmarks.held_moves --cost

A simulated app: 8 workers on 8 hosts, an even operator (`sums`, 63 key groups with 2.5 GiB of state each) and one key
group of another (`reports`).  At about noon the load of `reports` is six times as high for 10 minutes; the time varies
by two minutes from day to day, the height by 10 %, every load by 12 %.  No placement is even at both times.  Decider
and execution are the real ones; hosts restore 10 MB/s.  Three days are for learning, the next two are shown.

On the evening of the last day, when it never did before, the load of `reports` rises as much and stays: shown is after
what time the first key group has moved.

`--cost`: what 100,000 key groups on 1,000 workers cost per window, at the end of a step, and when a plan is judged, in
CPU seconds; what is recorded of a step, and how long a successor takes to read the records of a day.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab_controller.decider.forecast.day_pattern import MAX_AHEAD, DayPattern, deviations_of
from trimtab_controller.decider.forecast.history import DAY, STEP_S
from trimtab_controller.decider.forecast.moves import MAX_KEY_GROUPS as MANY
from trimtab_controller.decider.forecast.pattern_records import decode_pattern, encode_pattern, patterns_of, record_of
from trimtab_controller.decider.observing.owned import OwnedTable
from trimtab_controller.decider.observing.view import AppView, Worker
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.replay.alternatives import alternatives
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Outcome
from trimtab_controller.replay.placed import evenness_of, placed
from trimtab_controller.replay.replay import Replay
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

APP, SUMS, REPORTS = AppId("orders"), OperatorId("sums"), OperatorId("reports")
WORKERS, SUMS_COUNT, DAY_S = 8, 63, 86_400
BEGIN_S = 19_000 * DAY_S
LEARNED_DAYS, DAYS = 3, 5
PEAK_AT_S, SHIFT_AT_S, END_S = 12 * 3600, 18 * 3600, 19 * 3600
HEIGHT = 6.0
GIB = 2**30
HELD, AT_ONCE = "with the forecast", "without"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run: its windows, how long its peaks last, how many days it has, and how long the solver may take."""

    seed: int
    window_s: int = 150
    peak_s: float = 600.0
    days: int = DAYS
    solver_s: float = 0.2

    @property
    def owned(self) -> list[tuple[KeyGroup, int, float, int]]:
        """Key group, its worker at first, its load in cores, its state in bytes."""
        sums = [
            (KeyGroup(APP, SUMS, place), (place + 1) % WORKERS, 0.05, int(2.5 * GIB)) for place in range(SUMS_COUNT)
        ]
        return [(KeyGroup(APP, REPORTS, 0), 0, 0.05, 50_000_000), *sums]

    def windows(self) -> Iterator[tuple[int, int, Snapshot]]:
        """Day, second of the day, and the window as the app was placed at first."""
        draw, owned = random.Random(self.seed), self.owned
        for day in range(self.days):
            begin_s, height = PEAK_AT_S + draw.uniform(-60.0, 60.0), HEIGHT * draw.uniform(0.95, 1.05)
            for second in range(0, END_S if day == self.days - 1 else DAY_S, self.window_s):
                shifted = day == self.days - 1 and second >= SHIFT_AT_S
                high = shifted or begin_s <= second + self.window_s / 2 < begin_s + self.peak_s
                cpu = [
                    load * (height if high and each.operator == REPORTS else 1.0) * draw.uniform(0.94, 1.06)
                    for each, _, load, _ in owned
                ]
                yield day, second, self._window(BEGIN_S + day * DAY_S + second, cpu)

    def _window(self, start_s: int, cpu: list[float]) -> Snapshot:
        workers = [WorkerId(f"orders-{place}") for place in range(WORKERS)]
        hosts = [HostId(f"host-{place}") for place in range(WORKERS)]
        owned, covered_s = self.owned, float(self.window_s)
        used = np.bincount([owner for _, owner, _, _ in owned], weights=cpu, minlength=WORKERS).tolist()
        end_ms = (start_s + self.window_s) * 1000
        return Snapshot(
            cluster="simulated",
            start_ms=start_s * 1000,
            end_ms=end_ms,
            published_ms=end_ms + 500,
            hosts_seen=WORKERS,
            hosts_expected=WORKERS,
            watermark_ms=None,
            late_rows=0,
            hosts=tuple(
                HostWindow(host=host, covered_s=covered_s, cpu=each, cores=4.0, basis=Basis.CONFIG)
                for host, each in zip(hosts, used, strict=True)
            ),
            nodes=tuple(
                NodeWindow(
                    worker=worker, host=host, app=APP, state=WorkerState.RUNNING, capacity=1.0, covered_s=covered_s,
                    cpu=each + 0.02, complete=True, steering=True, operators={SUMS: SUMS_COUNT, REPORTS: 1},
                )
                for worker, host, each in zip(workers, hosts, used, strict=True)
            ),
            key_groups=tuple(
                KeyGroupWindow(
                    key_group=key_group, worker=workers[owner], covered_s=covered_s, cpu=each,
                    tuples_in_s=1000.0 * each, state_bytes=size, backlog=0,
                )
                for (key_group, owner, _, size), each in zip(owned, cpu, strict=True)
            ),
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Seen:
    """What came of the days from LEARNED_DAYS on, up to the shift.

    `distances` = the load distance in each window (pp); `before`, `after` = the outcomes when they began and ended.
    `moved_s` = after what time a key group had moved after the shift; None: none did.
    """

    distances: list[float] = field(default_factory=list)
    before: Outcome | None = None
    after: Outcome | None = None
    moved_s: int | None = None

    @property
    def mean(self) -> float:
        """The mean load distance (pp)."""
        return float(np.mean(self.distances))

    @property
    def plans(self) -> int:
        """The plans that were begun."""
        return self._more(lambda row: row.plans)

    @property
    def moved(self) -> int:
        """The key groups that were moved."""
        return self._more(lambda row: row.moved)

    @property
    def restored_gib(self) -> float:
        """The state that was restored."""
        return self._more(lambda row: row.restored_bytes) / GIB

    @property
    def held(self) -> int:
        """The windows in which a plan waited."""
        return self._more(lambda row: row.reasons.get(SkipReason.PEAK_PASSES, 0))

    def _more(self, of: Callable[[Outcome], int | None]) -> int:
        assert self.before is not None
        assert self.after is not None
        return (of(self.after) or 0) - (of(self.before) or 0)


def play(job: Job) -> dict[str, Seen]:
    """The days with the forecast and without it."""
    document = {
        "controller": {"cluster": "simulated"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "stream": {"checkpoint_dir": "none", "window_s": float(job.window_s)},
        "balance": {"method": "milp", "solver_time_limit_s": job.solver_s},
        "execution": {"prepare_timeout_s": 900.0},
        "forecast": {"mode": "act"},
    }
    tried = alternatives(document, ["forecast.mode=off"])
    replays = {
        name: Replay(each.configuration, answer, Pace()) for name, each in zip((HELD, AT_ONCE), tried, strict=True)
    }
    found = {name: Seen() for name in replays}
    for day, second, snapshot in job.windows():
        for name, replay in replays.items():
            _see(found[name], replay, snapshot, day=day, second=second, shifted=day == job.days - 1)
    return found


def _see(seen: Seen, replay: Replay, snapshot: Snapshot, *, day: int, second: int, shifted: bool) -> None:
    if second == 0 and day == LEARNED_DAYS:
        seen.before = replay.outcomes()[APP]
    if second == SHIFT_AT_S and shifted:
        seen.after = replay.outcomes()[APP]
    owners = dict(replay.owners)
    replay.see(snapshot)
    if shifted and second >= SHIFT_AT_S:
        if seen.moved_s is None and replay.owners != owners:
            seen.moved_s = second + (snapshot.end_ms - snapshot.start_ms) // 1000 - SHIFT_AT_S
    elif day >= LEARNED_DAYS:
        seen.distances.append(evenness_of(placed(snapshot, replay.owners))[APP].load_distance)


def cost() -> None:
    """Measure and print what many key groups cost."""
    workers = tuple(
        Worker(id=WorkerId(f"w{at}"), host=HostId(f"h{at}"), capacity=1.0, draining=False) for at in range(1000)
    )
    table = OwnedTable(
        app=APP, operators=(SUMS,), workers=tuple(each.id for each in workers), operator=np.zeros(MANY, np.int64),
        partition=np.arange(MANY), owner=np.arange(MANY) % 1000, load=np.full(MANY, 0.4),
        state_bytes=np.full(MANY, 1000), traffic=np.zeros((2, MANY)),
    )  # fmt: skip
    draw, pattern = np.random.default_rng(0), DayPattern(sizes={SUMS: MANY})
    spent: dict[str, list[float]] = {"a window": [], "the end of a step": []}
    view = AppView(app=APP, start_s=0.0, end_s=1.0, workers=workers, key_groups=table, flows={})
    for step in range(2 * DAY):
        loads = table.with_load(table.load * draw.uniform(0.9, 1.1, MANY))
        for half, name in enumerate(("the end of a step", "a window")):
            start_s = (step + half / 2.0) * STEP_S
            view = replace(view, start_s=start_s, end_s=start_s + STEP_S / 2.0, key_groups=loads)
            begun = time.process_time()
            pattern.see(view, 0.0)
            spent[name].append(time.process_time() - begun)
    for name, each in spent.items():
        print(f"{name}: {np.median(each):.4f} CPU s")
    begun = time.process_time()
    _, ahead = pattern.ahead(view, view.end_s, MAX_AHEAD)
    for row in ahead:
        deviations_of(view, row)
    print(f"a forecast of {MAX_AHEAD} steps: {time.process_time() - begun:.3f} CPU s")
    records = [encode_pattern(record_of(APP, pattern, slot)) for slot in pattern.recorded()]
    begun = time.process_time()
    patterns_of(map(decode_pattern, records))
    read_s = time.process_time() - begun
    total = sum(map(len, records)) / 1e6
    print(f"a record: {len(records[0]) / 1e3:.0f} kB; those of a day: {total:.0f} MB, read in {read_s:.2f} CPU s")
    print(f"memory of the pattern: {pattern.rows.nbytes / 1e6:.0f} MB")


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cost", action="store_true")
    args = parser.parse_args()
    if args.cost:
        cost()
        return
    table = Table(box=None)
    for name in ("seed", "", "plans", "key groups moved", "GiB restored", "load distance", "windows held", "shift"):
        table.add_column(name, justify="right")
    for seed in range(args.seeds):
        for name, seen in play(Job(seed=seed)).items():
            moved = "never" if seen.moved_s is None else f"{seen.moved_s} s"
            counts = (seen.plans, seen.moved, f"{seen.restored_gib:.1f}", f"{seen.mean:.3f}", seen.held)
            table.add_row(str(seed), name, *map(str, counts), moved)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
