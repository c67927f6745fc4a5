"""Real workers that cannot use more than their capacity: the one that is asked for more is relieved by the first plan.

And a job that waits for something else than CPU is told as blocked, and nothing moves for it.  One that other programs
keep from the cores is not: it is asked for what arrives.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import pytest

from flights.steered_run import READY_LIMIT_S
from flights.watch import read_snapshots
from tests.e2e.paced_run import PARTITIONS, Run, backlog, figures, key_groups_of, paced_run
from tests.e2e.throttle import Throttle
from tests.shown import Show
from trimtab_protocol.messages.status import Status

pytestmark = pytest.mark.scenario

CAPACITY = 0.2
BURN_S = 0.01
CALM = 1.2
"""Jobs per second of a key group at first: its worker uses about 40 % of its capacity."""
HOT, WARM = 10.0, 4.2
"""Of the key groups of w0 later: one of them, and each of the others.  Together they ask for 130 % of its capacity."""
RISEN = 3.6
"""Of all key groups while other programs use the cores: 72 % of the capacity of each worker, without its fixed use."""
LEAST_ASKED = 65.0
"""Percent of the capacity that each worker is asked for then."""
TOLERANCE_PP = 8.0
"""Each worker counts about 40 jobs in a window, and the plan begins at 65 pp."""
WINDOWS = 4
"""Of which the mean is taken besides the first one."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with paced_run(
        tmp_path_factory.mktemp("demand"),
        "demand",
        rate=CALM,
        capacity_cores=CAPACITY,
        host_cores=1.0,
        interval_s=2.5,  # a throttled worker answers late
        environment={"BURN_S": str(BURN_S)},
        controller={"balance": {"min_interval_s": 10.0, "catch_up_s": 120.0}},
    ) as made:
        made.until(
            lambda status: key_groups_of(status) == [4, 4, 4],
            "all workers running, with four key groups each",
            limit_s=READY_LIMIT_S,
        )
        made.trimtab("pause", "--reason", "show the job unbalanced first")
        with Throttle([made.cluster.pids[f"w{index}"] for index in range(3)], CAPACITY):
            yield made


def test_the_worker_that_is_asked_for_more_than_it_has_is_relieved_by_the_first_plan(run: Run, show: Show) -> None:
    newest = read_snapshots(run.cluster.broker.address, run.cluster.topics)[-1]
    mine = sorted(row.key_group.partition for row in newest.key_groups if row.worker == "w0")
    run.jobs.rates |= {mine[0]: HOT, **dict.fromkeys(mine[1:], WARM)}
    run.windows(3)
    before = run.until(
        lambda status: "over_capacity" in {concern.kind for concern in status.concerns}, "a worker over its capacity"
    )
    hot, *others = before.nodes
    assert hot.demand_pct is not None
    assert hot.used_pct is not None
    assert 115.0 < hot.demand_pct < 190.0, "130 %, and its backlog within two minutes"
    assert hot.used_pct < 110.0
    assert all((row.demand_pct or 999.0) == pytest.approx(row.used_pct) for row in others)
    assert before.rounds == ()

    run.trimtab("resume")
    after = run.until(lambda status: status.rounds and status.rounds[-1].after is not None, "a measured plan")
    first, windows = after.rounds[0], [after, *run.windows(WINDOWS)]
    loads = [mean(row.load_pct or 0.0 for row in rows) for rows in zip(*(each.nodes for each in windows), strict=True)]
    measured = max(abs(load - mean(loads)) for load in loads)
    print(f"load distance {first.before:.1f} -> {first.planned:.1f} planned, {measured:.1f} measured")
    show("demand of the worker that is asked for 130 %", "130 % and its backlog", f"{hot.demand_pct:.0f} %")
    show("load distance after the first plan", f"{first.planned:.1f} pp", f"{measured:.1f} pp")
    assert len(after.rounds) == 1
    assert measured - first.planned <= TOLERANCE_PP
    calm = run.until(lambda status: backlog(status) < backlog(before) / 2, "a backlog that falls")
    print(figures(before), figures(after), figures(calm), sep="\n")
    assert all((row.demand_pct or 999.0) < 105.0 for row in calm.nodes)
    assert "plans_miss" not in {concern.kind for concern in calm.concerns}


def test_nothing_moves_for_a_job_that_waits_for_something_else(run: Run, show: Show) -> None:
    run.until(lambda status: backlog(status) < 20, "no backlog")
    run.jobs.rates |= dict.fromkeys(range(PARTITIONS), 2 * CALM)
    run.until(
        lambda status: [row.key_groups for row in status.nodes] == [4, 4, 4] and not status.plans_in_flight,
        "a plan for the load that is even again",
    )
    run.windows(3)
    rounds = len(run.last.rounds)
    run.wait.touch()
    told = run.until(lambda status: "blocked" in {concern.kind for concern in status.concerns}, "what is blocked")
    seen = [told, *run.windows(2)]

    show("plans for a job that is blocked", "0", str(len(seen[-1].rounds) - rounds))
    assert [len(status.rounds) for status in seen] == [rounds] * 3
    assert backlog(seen[-1]) > backlog(told) > 0
    assert all((row.used_pct or 999.0) < 60.0 for status in seen for row in status.nodes)
    assert all(row.demand_pct == pytest.approx(row.used_pct) for status in seen for row in status.nodes)
    assert "over_capacity" not in {concern.kind for concern in seen[-1].concerns}
    assert "key groups wait at" in run.trimtab("status")


def test_workers_that_other_programs_keep_from_the_cores_are_asked_for_what_arrives(run: Run, show: Show) -> None:
    """Each "host" knows what its own worker and agent use, so that nothing but the kernel tells of the others."""
    run.wait.unlink(missing_ok=True)
    run.until(lambda status: backlog(status) < 20, "no backlog")
    run.jobs.rates |= dict.fromkeys(range(PARTITIONS), RISEN)
    run.windows(3)
    with others_first([run.cluster.pids[f"w{index}"] for index in range(3)]):
        seen = [run.until(lambda status: "backlog_grows" in kinds(status), "a backlog that grows"), *run.windows(3)]
        told = run.trimtab("status")
    last = seen[-1]
    print(figures(last), [concern.text for concern in last.concerns], sep="\n")
    asked, used = ([getattr(row, name) or 0.0 for row in last.nodes] for name in ("demand_pct", "used_pct"))
    show("least demand of workers that are kept from the cores", f"{LEAST_ASKED:.0f} %", f"{min(asked):.0f} %")
    show("CPU that they got, of their capacity", "less than 60 %", f"{max(used):.0f} %")
    assert "blocked" not in set().union(*map(kinds, seen))
    assert max(used) < 60.0, "otherwise the test shows nothing"
    assert all(LEAST_ASKED <= pct < 200.0 for pct in asked)
    assert "waits for a core" in told


def kinds(status: Status) -> set[str]:
    return {concern.kind for concern in status.concerns}


@contextmanager
def others_first(pids: Sequence[int]) -> Iterator[None]:
    """Programs that use all cores and go before the main threads of these processes, while the context is open."""
    for pid in pids:
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        if (group := Path(f"/proc/{pid}/autogroup")).exists():  # then priorities count among processes of one session
            group.write_text("12")
    burn = "import os, time\nos.setpriority(os.PRIO_PROCESS, 0, 10)\nwhile time.process_time() < 600: pass"
    command = [sys.executable, "-c", burn]
    others = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
