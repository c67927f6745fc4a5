"""Rejoins in place on a real broker, the short version: `prove in-place` plays all of them, longer."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.in_place import ON, begin_in_place, rejoins
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import Outcome, run
from tests.e2e.steering.scenarios import SHORT_SESSION, Act, Scenario

CALM = {"rate": 60.0, "preload": 200}


def played(act: Act, folder: Path, *planted: str) -> Outcome:
    setup = Setup(planted=planted, seed=41, **ON, **CALM, **SHORT_SESSION)  # type: ignore[arg-type]
    return asyncio.run(run(Scenario(name="in place", setup=setup, act=act), folder))


@pytest.mark.e2e
def test_nothing_is_lost_or_done_twice_while_members_rejoin(tmp_path: Path) -> None:
    assert played(rejoins(15.0, moving=True), tmp_path).complaints == []


@pytest.mark.e2e
def test_the_oracle_finds_a_member_that_works_on_after_it_was_thrown_out(tmp_path: Path) -> None:
    async def stop_and_continue(cluster: Cluster) -> None:
        await begin_in_place(cluster)
        stopped = worker(0)
        cluster.stop(stopped)
        await asyncio.sleep(cluster.setup.session_s + 4.0)
        cluster.alive[stopped].send(signal.SIGCONT)
        await asyncio.sleep(5.0)
        cluster.load.stop_at_once()

    outcome = played(stop_and_continue, tmp_path, "hears nothing")
    found = {complaint.split(":")[0] for complaint in outcome.complaints}

    assert "key groups without exactly one owner" in found
    assert outcome.verdict.duplicated["outputs"] > 0


@pytest.mark.e2e
def test_the_oracle_finds_a_commit_in_a_later_generation(tmp_path: Path) -> None:
    async def move_and_leave(cluster: Cluster) -> None:
        await begin_in_place(cluster)
        source, target = worker(0), worker(1)
        held = tuple(key for key in cluster.key_groups if cluster.row(key)[0] == source)[:2]
        assert await cluster.hand_over(held, source, target)
        await asyncio.sleep(3.0)
        assert await cluster.terminate(target) == 0
        await cluster.settled()

    outcome = played(move_and_leave, tmp_path, "proves again")

    found = {complaint.split(":")[0] for complaint in outcome.complaints}

    assert found & {"duplicated", "not committed"}, found
    assert sum(outcome.verdict.lost.values()) == 0
