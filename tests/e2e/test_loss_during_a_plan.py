"""A worker is killed while a plan moves key groups to it: the plan ends early, and its key groups restore elsewhere."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.page_views_run import all_run, page_views
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.round_status import RoundStatus
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.cluster import program

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

SESSION_S = 30.0
"""Less than Faust's 60 s, but longer than the two windows of 5 s after which a worker counts as lost."""
WINDOW_S, REPORTED_S = 5.0, 0.8
"""The sandbox's windows, and how long after one the last report of it is made."""
ONE_BY_ONE = {"handovers_in_flight": 1, "key_groups_per_handover": 1}
KEY_GROUPS = 32
DRAINED, KILLED, LEFT = "w1", "w0", "w2"


def drains(status: Status) -> RoundStatus | None:
    """The plan in flight that drains the worker."""
    return next((row for row in status.rounds if DRAINED in row.reason and row.ended_at is None), None)


def test_the_plan_ends_early_and_the_key_groups_restore_elsewhere(tmp_path: Path) -> None:
    controller = {
        "balance": {"min_interval_s": 5.0, "load_distance": 60.0, "lost_worker_s": 120.0, "min_windows": 1},
        "execution": ONE_BY_ONE,
    }
    with page_views(tmp_path, "loss", session_s=SESSION_S, controller=controller) as run:
        clicks = run.start_job()
        run.until(
            lambda status: all_run(status) and any(row.kind == "adopt" for row in status.decisions), "a placement"
        )
        before = run.last.window_end
        window = run.until(lambda status: status.window_end != before, "the next window").window_end
        assert window is not None
        config = str(run.cluster.controller_toml)
        drain = program("trimtab_controller.cli", "drain", DRAINED, "--reason", "test", "--config", config)
        subprocess.run(drain, check=True, capture_output=True, timeout=60)
        # From the end of a window that shows it whole, it does nothing more: what the plan moves to it is never warm.
        while time.time() < window + WINDOW_S + REPORTED_S:
            time.sleep(0.05)
        os.kill(run.cluster.pids[KILLED], signal.SIGSTOP)
        moving = drains(run.until(drains, "a plan in flight"))
        assert moving is not None
        run.cluster.kill(KILLED)
        killed = time.time()

        def ended(status: Status) -> RoundStatus | None:
            return next((row for row in status.rounds if row.plan == moving.plan and row.ended_at is not None), None)

        early = ended(run.until(ended, "the end of the plan", SESSION_S))
        assert early is not None
        assert early.ended_at is not None
        print(f"\nthe plan ended {early.ended_at - killed:.1f} s after the kill: {early.stopped}")
        assert "ended early, since w0 is away" in (early.stopped or "")
        assert early.failed > 0

        def restores(status: Status) -> RoundStatus | None:
            return next((row for row in status.rounds if "Elastic Allocator" in row.reason), None)

        begun = restores(run.until(restores, "restores"))
        assert begun is not None
        print(f"restores began {begun.started_at - killed:.1f} s after the kill: {begun.reason}")
        assert begun.started_at - killed < SESSION_S, "before the group has noticed it"

        def taken_over(status: Status) -> bool:
            counts = {row.worker: row.key_groups for row in status.nodes if row.state is WorkerState.RUNNING}
            warm = restores(status)
            done = warm is not None and warm.ended_at is not None
            return done and counts.keys() == {DRAINED, LEFT} and sum(counts.values()) == KEY_GROUPS

        run.until(taken_over, "all key groups at the others")
        print(f"all taken over {time.time() - killed:.0f} s after the kill")
        clicks.close()
        counted = run.counted(clicks.sent)
        lost = {page: (count, counted[page]) for page, count in clicks.sent.items() if counted[page] < count}
        assert lost == {}, "page: (sent, counted)"
