"""A worker without standbys is killed: its key groups go where the controller has said, before the group notices."""

import time
from pathlib import Path

import pytest

from tests.e2e.paced_run import PARTITIONS, counted, key_groups_of, paced_run
from tests.shown import Show
from trimtab_protocol.messages.status import Status

pytestmark = pytest.mark.scenario

SESSION_S = 60.0
"""Faust's default, which is several windows."""
NAMED = "Elastic Allocator"


def all_placed(status: Status) -> bool:
    """Whether all three workers own key groups, where the controller has placed them."""
    owned = key_groups_of(status)
    return len(owned) == 3 and all(owned) and any(row.kind == "adopt" for row in status.decisions)


def test_the_group_follows_what_the_controller_has_named(tmp_path: Path, show: Show) -> None:
    balance = {"min_interval_s": 10.0, "load_distance": 60.0, "lost_worker_s": 120.0}
    with paced_run(
        tmp_path,
        "orphans",
        rate=4.0,
        capacity_cores=0.5,
        environment={"BURN_S": "0.002"},
        controller={"balance": balance},
    ) as run:
        run.until(all_placed, "a placement", 240.0)
        run.until(lambda status: status.decisions[-1].kind == "skip", "rest")
        killed = time.time()
        run.cluster.kill("w0")

        named = run.until(lambda status: any(NAMED in row.text for row in status.decisions), "next owners", SESSION_S)
        [decision] = [row for row in named.decisions if NAMED in row.text]
        show("next owners named after the kill", f"within {SESSION_S:g} s", f"{decision.at - killed:.1f} s")
        assert decision.at - killed < SESSION_S

        run.until(
            lambda status: len(owned := key_groups_of(status)) == 2 and all(owned) and sum(owned) == PARTITIONS,
            "all key groups at the others",
            240.0,
        )
        ended = run.until(
            lambda status: any(NAMED in row.reason and row.ended_at for row in status.rounds), "the end of the plan"
        )
        [warmed] = [row for row in ended.rounds if NAMED in row.reason]
        assert warmed.migrations > 0
        assert warmed.failed == 0
        assert warmed.recovery_s is not None, "the targets have said that they were warm"
        planned = "?" if warmed.recovery_planned_s is None else f"{warmed.recovery_planned_s:.2f} s"
        show(f"{warmed.migrations} key groups warm", planned, f"{warmed.recovery_s:.2f} s")
        run.jobs.close()
        run.windows(2)
        found = counted(run.cluster.broker.address)
        assert all(found.get(key, 0) >= count for key, count in run.jobs.sent.items()), "nothing is lost"
