"""Where an app that has never run is placed: the share of tuples that go to another worker in its first minutes.

    python -m pytest tests/e2e/test_first_placement.py -n 0 -s

The job is the paper's page view count (`page_views_app.py`) on three workers.  Each row of the table is a cluster of
its own, with `[placement] first` set: `adopt` leaves what stock Faust does.
"""

import re
import time
from pathlib import Path

import pytest

from flights.watch import read_snapshots
from tests.e2e.page_views_run import all_run, page_views
from tests.shown import Show
from trimtab_protocol.messages.snapshot import Snapshot

pytestmark = pytest.mark.scenario

FIRST_S, END_S = 60.0, 85.0
MADE = re.compile("first placement: (even|lf|as started)")
KEYED_SHARE = 1 / 3
"""Of the tuples between key groups: those from view to count go by page, to any worker."""


def remote_share(window: Snapshot) -> float | None:
    """Share of the tuples between key groups that went to another worker; None if there were none."""
    owners = {row.key_group: row.worker for row in window.key_groups}
    known = [pair for pair in window.pairs if pair.source in owners and pair.target in owners]
    total = sum(pair.tuples_s for pair in known)
    far = sum(pair.tuples_s for pair in known if owners[pair.source] != owners[pair.target])
    return far / total if total else None


@pytest.mark.parametrize("first", ["adopt", "even", "lf", "auto"])
def test_the_remote_share_of_an_app_that_has_never_run(first: str, tmp_path: Path, show: Show) -> None:
    alone = {"min_interval_s": 10.0, "load_distance": 60.0}  # shows the first placement without plans for balance
    controller = {"balance": alone, "placement": {"first": first}}
    with page_views(tmp_path, f"first-{first}", session_s=6.0, controller=controller) as run:
        begun = time.time()
        clicks = run.start_job()
        status = run.until(
            lambda status: (
                all_run(status)
                and not status.plans_in_flight
                and (first == "adopt" or any(MADE.search(row.text) for row in status.decisions))
            ),
            "the first placement",
        )
        while time.time() < begun + END_S:
            status = run.watch.poll() or status
            time.sleep(0.2)
        clicks.close()

        windows = read_snapshots(run.cluster.broker.address, run.cluster.topics)
        shares = [(each.end_ms / 1000 - begun, share) for each in windows if (share := remote_share(each)) is not None]
        minute, after = _mean(shares, 0.0, FIRST_S), _mean(shares, FIRST_S, END_S)
        pauses = [round(pause, 2) for row in status.rounds for pause in row.pauses_s]
        moves = sum(row.migrations for row in status.rounds)
        print(f"\n{first}: {minute:.0%} remote in the first minute, {after:.0%} after it; {moves} moves")
        print(f"  by window: {[(round(at), round(share, 2)) for at, share in shares]}; pauses {pauses}")
        print("  " + next((row.text for row in status.decisions if MADE.search(row.text)), "adopted"))
        wanted = "below 33 %" if first in ("lf", "auto") else "-"
        show(f"{first}: remote share in the first minute", "-", f"{minute:.0%}")
        show(f"{first}: remote share after it, {moves} moves", wanted, f"{after:.0%}")
        assert run.counted(clicks.sent) == clicks.sent, "nothing is lost, and nothing counted twice"
        assert sum(row.failed for row in status.rounds) == 0
        generations = {row.generation for each in windows if each.start_ms / 1000 > begun + 40.0 for row in each.nodes}
        assert len(generations) == 1, "no rebalance"
        if first == "adopt":
            assert not status.rounds
        elif first != "even":
            assert after < KEYED_SHARE, "only what goes by page leaves the worker"


def _mean(shares: list[tuple[float, float]], start: float, end: float) -> float:
    found = [share for at, share in shares if start < at <= end]
    return sum(found) / len(found)
