"""A worker without standbys is killed: its key groups go where the controller has said, before the group notices."""

import time
from pathlib import Path

import pytest

from flights.watch import read_snapshots
from tests.e2e.page_views_run import all_run, page_views
from tests.shown import Show
from trimtab_protocol.messages.report import WorkerState

pytestmark = pytest.mark.scenario

SESSION_S = 40.0
"""Less than Faust's 60 s, but several windows."""


def test_the_group_follows_what_the_controller_has_named(tmp_path: Path, show: Show) -> None:
    balance = {"min_interval_s": 10.0, "load_distance": 60.0, "lost_worker_s": 120.0}
    with page_views(tmp_path, "orphans", session_s=SESSION_S, controller={"balance": balance}) as run:
        clicks = run.start_job()
        run.until(
            lambda status: all_run(status) and any(row.kind == "adopt" for row in status.decisions), "a placement"
        )
        run.until(lambda status: status.decisions[-1].kind == "skip", "rest")
        killed = time.time()
        run.cluster.kill("w0")

        named = run.until(
            lambda status: any("Elastic Allocator" in row.text for row in status.decisions), "next owners", SESSION_S
        )
        [decision] = [row for row in named.decisions if "Elastic Allocator" in row.text]
        said_s = decision.at - killed
        print(f"\nnext owners named {said_s:.1f} s after the kill, session {SESSION_S:g} s: {decision.text}")
        show("next owners named after the kill", f"within {SESSION_S:g} s", f"{said_s:.1f} s")
        assert said_s < SESSION_S

        run.until(
            lambda status: (
                {row.worker for row in status.nodes if row.state is WorkerState.RUNNING and row.key_groups}
                == {"w1", "w2"}
                and sum(row.key_groups for row in status.nodes if row.worker in ("w1", "w2")) == 32
            ),
            "all key groups at the others",
        )
        ended = run.until(
            lambda status: any("Elastic Allocator" in row.reason and row.ended_at for row in status.rounds),
            "the end of the plan",
        )
        [warmed] = [row for row in ended.rounds if "Elastic Allocator" in row.reason]
        print(f"{warmed.migrations} warm after {warmed.recovery_s} s, {warmed.recovery_planned_s} s planned")
        assert warmed.migrations > 0
        assert warmed.failed == 0
        assert warmed.recovery_s is not None, "the targets have said that they were warm"
        planned = "?" if warmed.recovery_planned_s is None else f"{warmed.recovery_planned_s:.2f} s"
        show(f"{warmed.migrations} key groups warm", planned, f"{warmed.recovery_s:.2f} s")
        newest = read_snapshots(run.cluster.broker.address, run.cluster.topics)[-1]
        counts = {name: sum(row.worker == name for row in newest.key_groups) for name in ("w1", "w2")}
        print(f"all taken over {newest.end_ms / 1000 - killed:.0f} s after the kill: {counts}")
        placed = run.cluster.logs / "controller.log"
        assert "Elastic Allocator" in placed.read_text()
        clicks.close()
        counted = run.counted(clicks.sent)
        assert all(counted[page] >= count for page, count in clicks.sent.items()), "nothing is lost"
