"""A worker is killed during a plan for a drain: the plan ends early, and others restore what the worker had."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.page_views_run import LIMIT_S, all_run, page_views
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.round_status import RoundStatus
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.cluster import program

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

SESSION_S = 30.0
"""Less than Faust's 60 s, but longer than the two windows of 5 s after which a worker counts as lost."""
ONE_BY_ONE = {"handovers_in_flight": 1, "key_groups_per_handover": 1}
KEY_GROUPS = 32
DRAINED, KILLED, LEFT = "w1", "w0", "w2"


def plan_begun(log: Path) -> str:
    """The plan that drains the worker, as soon as the controller has said that it begins."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if begun := re.search(rf" INFO plan (\S+): pages: .*drain {DRAINED}", log.read_text()):
            return begun[1]
        time.sleep(0.02)
    pytest.fail(f"no plan drains {DRAINED}: {log.read_text()[-2000:]}")


def test_the_plan_ends_early_and_the_key_groups_restore_elsewhere(tmp_path: Path) -> None:
    controller = {
        "balance": {"min_interval_s": 5.0, "load_distance": 60.0, "lost_worker_s": 120.0},
        "execution": ONE_BY_ONE,
    }
    with page_views(tmp_path, "loss", session_s=SESSION_S, controller=controller) as run:
        clicks = run.start_job()
        run.until(
            lambda status: all_run(status) and any(row.kind == "adopt" for row in status.decisions), "a placement"
        )
        config = str(run.cluster.controller_toml)
        drain = program("trimtab_controller.cli", "drain", DRAINED, "--reason", "test", "--config", config)
        subprocess.run(drain, check=True, capture_output=True, timeout=60)
        plan = plan_begun(run.cluster.logs / "controller.log")
        run.hold.touch()  # a key group with a click in work is not handed over, so that the plan is still in flight
        run.cluster.kill(KILLED)
        killed = time.time()

        run.until(
            lambda status: any("ended early, since w0 is away" in row.text for row in status.decisions),
            "the early end of the plan",
        )
        run.hold.unlink()

        def ended(status: Status) -> RoundStatus | None:
            return next((row for row in status.rounds if row.plan == plan and row.ended_at is not None), None)

        early = ended(run.until(ended, "the end of the plan"))
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
