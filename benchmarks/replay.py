"""A synthetic day of windows, replayed under three settings: what the controller would have done, side by side.

    python -m benchmarks.replay

12 workers on 6 hosts, 240 key groups, windows of 30 s.  The load follows the hour of the day; key groups drift on their
own, and a few have peaks of some minutes.  The placement that the day was recorded with is a round robin.
"""

import argparse
import math
import random
import time
from collections.abc import Iterator

from rich.console import Console

from benchmarks.played import host_window, node_window, snapshot_of
from trimtab_controller.cli.replay import show
from trimtab_controller.replay.alternatives import alternatives
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Tally
from trimtab_controller.replay.placed import evenness_of
from trimtab_controller.replay.replay import Replay
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.snapshot import KeyGroupWindow, Snapshot

APP, OPERATOR = AppId("orders"), OperatorId("sums")
WORKERS, HOSTS, KEY_GROUPS, WINDOW_S, DAY_S = 12, 6, 240, 30, 86_400
DOCUMENT = {
    "controller": {"cluster": "replayed"},
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "stream": {"checkpoint_dir": "none", "window_s": float(WINDOW_S)},
    "balance": {"solver_time_limit_s": 0.2},
}
TRIED = ["balance.load_distance=2", "balance.load_distance=10,balance.max_migrations=5"]


def day(seed: int, hours: float) -> Iterator[Snapshot]:
    """The windows of a day, or of its first `hours`."""
    draw = random.Random(seed)
    base = [draw.paretovariate(2.0) for _ in range(KEY_GROUPS)]
    scale = WORKERS * 0.4 / sum(base)
    drift, peaks = [0.0] * KEY_GROUPS, [0] * KEY_GROUPS
    for number in range(round(hours * 3600 / WINDOW_S)):
        start_ms = 1_700_000_000_000 + number * WINDOW_S * 1000
        tide = 1.0 + 0.4 * math.sin(2 * math.pi * number * WINDOW_S / DAY_S)
        cpu = []
        for place in range(KEY_GROUPS):
            drift[place] = 0.999 * drift[place] + draw.gauss(0.0, 0.02)
            if peaks[place] == 0 and draw.random() < 2e-5:
                peaks[place] = draw.randrange(4, 40)
            peaks[place] = max(0, peaks[place] - 1)
            peak = 4.0 if peaks[place] else 1.0
            cpu.append(base[place] * scale * tide * math.exp(drift[place]) * peak * draw.uniform(0.95, 1.05))
        yield _window(start_ms, cpu)


def _window(start_ms: int, cpu: list[float]) -> Snapshot:
    workers = [WorkerId(f"orders-{place:02}") for place in range(WORKERS)]
    hosts = [HostId(f"host-{place % HOSTS}") for place in range(WORKERS)]
    of_worker = [sum(cpu[place::WORKERS]) for place in range(WORKERS)]
    return snapshot_of(
        "replayed",
        start_ms / 1000,
        WINDOW_S,
        hosts=(
            host_window(HostId(f"host-{place}"), WINDOW_S, cores=4.0, cpu=sum(of_worker[place::HOSTS]))
            for place in range(HOSTS)
        ),
        nodes=(
            node_window(worker, host, APP, WINDOW_S, cpu=used + 0.02, operators={OPERATOR: KEY_GROUPS})
            for worker, host, used in zip(workers, hosts, of_worker, strict=True)
        ),
        key_groups=(
            KeyGroupWindow(
                key_group=KeyGroup(APP, OPERATOR, place),
                worker=workers[place % WORKERS],
                covered_s=WINDOW_S,
                cpu=each,
                tuples_in_s=1000.0 * each,
                state_bytes=20_000_000,
                backlog=0,
            )
            for place, each in enumerate(cpu)
        ),
    )


def main() -> None:
    """Replay the day and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0, help="only the first hours of the day")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="instead of the settings of the published table")
    args = parser.parse_args()
    tried = alternatives(DOCUMENT, args.set or TRIED)
    replays = {each.name: Replay(each.configuration, answer, Pace()) for each in tried}
    done, began = Tally(), time.monotonic()
    for snapshot in day(args.seed, args.hours):
        done.see(evenness_of(snapshot)[APP])
        for each in replays.values():
            each.see(snapshot)
    outcome = done.outcome()
    assert outcome is not None
    columns = {"as done": {APP: outcome}, **{name: each.outcomes() for name, each in replays.items()}}
    show([APP], columns, f"{args.hours:g} h, seed {args.seed}", Console(width=140))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
