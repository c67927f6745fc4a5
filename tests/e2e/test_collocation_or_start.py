"""Collocation, balance and scaling decide together on a real cluster.

Senders of a job of pairs get other receivers, and the controller learns what events between workers cost.  The input
grows until the workers are well used.  Then senders get other receivers again, so that all pairs are apart.  Where the
topic between them is local, collocation absorbs what that costs, and no worker is started.  Where it is not, every
event goes through the broker wherever its key groups are, and at the same input one is.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flights.steered_run import READY_LIMIT_S
from tests.e2e.paced_run import Run, counted, key_groups_of, paced_run
from tests.shown import Show
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import SizeStatus, Status

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(1800)]

PARTITIONS, WORKERS, POOL = 24, 3, 1
CAPACITY = 0.4
PARTS = 20
FIRST_RATE, FASTER = 0.8, 1.03
"""Jobs per second of a pair at first, and by how much it grows at least in each step."""
MEASURED_AT, USED = 0.45, 0.65
"""Share of the capacity at which the controller learns what events between workers cost, and with which it decides."""
TARGET = 0.8
"""A worker is wanted above 85 %.  Above 100 % nothing waits for collocation."""
LEARNED_S, DECIDED_S = 300.0, 240.0


def test_collocation_avoids_a_start_where_topics_are_local_and_only_there(tmp_path: Path, show: Show) -> None:
    apart = tmp_path / "local" / "apart"
    with paired(apart, FIRST_RATE, local=True) as run:
        run.windows(4)
        grow(run, MEASURED_AT)
        apart.touch()
        run.windows(2)
        run.until(
            lambda status: together(status) > 0.9 and not status.plans_in_flight, "pairs that are together", LEARNED_S
        )
        rate = grow(run, USED)
        before = run.last
        apart.unlink()
        seen = decided(run, lambda seen: min(map(together, seen)) < 0.5 and absorbed(seen[-1]))
    waited = [each for each in seen if "waiting for collocation" in size_of(each).text]
    show("workers started, local", "0", str(max(map(running, seen)) - WORKERS))
    show("percent of the capacity, local", "more in between", percents([before, *seen]))
    assert {running(each) for each in seen} == {WORKERS}
    assert waited
    assert all("potential plan: solver" in size_of(each).text for each in waited)

    with paired(tmp_path / "broker" / "apart", rate, local=False) as run:
        seen = decided(run, lambda _: False)
    show("workers started, through the broker", "1", str(running(seen[-1]) - WORKERS))
    show("percent of the capacity, through the broker", "more than 85 at first", percents(seen))
    assert running(seen[-1]) == WORKERS + POOL
    assert not any("waiting for collocation" in size_of(each).text for each in seen)


@contextmanager
def paired(apart: Path, rate: float, *, local: bool) -> Iterator[Run]:
    """The job on workers that run.  At the end all of its jobs were counted once."""
    folder = apart.parent
    folder.mkdir()
    with paced_run(
        folder,
        "paired",
        app="tests.e2e.paired_app:app",
        app_id="paced",
        rate=rate,
        workers=WORKERS + POOL,
        pool=POOL,
        partitions=PARTITIONS,
        capacity_cores=CAPACITY,
        host_cores=1.0,
        interval_s=2.5,
        environment={"PARTS": str(PARTS), "APART": str(apart), "LOCAL": str(int(local))},
        more_topics=["parts"],
        controller={
            "balance": {"min_interval_s": 5.0},
            "scaling": {"mode": "act", "target_utilisation": TARGET, "scale_up_delay_s": 20.0},
        },
    ) as run:
        run.until(
            lambda status: len(key_groups_of(status)) == WORKERS and sum(key_groups_of(status)) == 2 * PARTITIONS,
            "all workers running, with all key groups",
            limit_s=READY_LIMIT_S,
        )
        yield run
        run.jobs.close()
        run.until(lambda _: done(run) == run.jobs.sent, "all jobs counted, each once")


def grow(run: Run, used: float) -> float:
    """Send faster and faster, until so much of the capacity is asked for; jobs per second of a pair."""
    rate, wanted = run.jobs.rates[0], used * WORKERS * CAPACITY
    while (now := asked(run.until(asked, "a known demand")) or wanted) < wanted:
        rate *= max(FASTER, wanted / now)  # not too much: workers use some for themselves
        run.jobs.rates |= dict.fromkeys(range(PARTITIONS), rate)
        run.windows(5)
    return rate


def decided(run: Run, enough: Callable[[list[Status]], bool]) -> list[Status]:
    """The status of each window from the next one on, until it is enough, or a worker more runs; and four after it."""
    seen = run.windows(1)

    def is_decided(status: Status) -> bool:
        if status.window_end != seen[-1].window_end:
            seen.append(status)
        return running(status) > WORKERS or enough(seen)

    run.until(is_decided, "a worker more, or none needed", limit_s=DECIDED_S)
    seen += run.windows(4)
    print(*(f"{together(each):.2f} together, {size_of(each).text}" for each in seen), sep="\n")
    return seen


def running(status: Status) -> int:
    return sum(row.state is WorkerState.RUNNING for row in status.nodes)


def size_of(status: Status) -> SizeStatus:
    size = status.apps[0].size
    assert size is not None
    return size


def asked(status: Status) -> float | None:
    """Cores that all workers are asked for; None while that is unknown."""
    return size_of(status).demand_cores


def percents(seen: list[Status]) -> str:
    shares = ((size_of(each).demand_cores, size_of(each).capacity_cores) for each in seen)
    return ", ".join(f"{100 * cores / capacity:.0f}" for cores, capacity in shares if cores and capacity)


def together(status: Status) -> float:
    """Share of the events whose sender and receiver are in one worker; 1 while that is unknown."""
    share = status.apps[0].collocation
    return 1.0 if share is None else share


def absorbed(status: Status) -> bool:
    cores = asked(status)
    fits = cores is not None and cores < TARGET * WORKERS * CAPACITY
    return fits and together(status) > 0.9 and not status.plans_in_flight


def done(run: Run) -> Counter[str]:
    """How many jobs of each key were counted, wherever they were."""
    found = Counter[str]()
    for name, count in counted(run.cluster.broker.address).items():
        found[name.partition("@")[0]] += count
    return found
