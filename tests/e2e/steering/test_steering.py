"""Steering on a real broker, the short version: `make prove-steering` runs all scenarios, longer."""

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.steering.app_names import Feature, note_fault
from tests.e2e.steering.changes import upgrade
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin, storm
from tests.e2e.steering.verdict import Verdict, _Inputs, _judged, steps_back

SHORT = (
    Scenario(
        name="storm on an uncommitted backlog, slow end of recovery",
        setup=Setup(rate=60.0, preload=600, placed=False, part_size=3, delays_s={"perform_seek": 0.15}),
        act=storm(4),
    ),
    Scenario(
        name="topic, table and agent added",
        setup=Setup(workers=2, partitions=4, features=(Feature.UNNAMED,), rate=40.0, preload=300),
        act=upgrade(Feature.ORDERS, topics=("orders", "orders_done"), fed="orders", back=False, moves=1),
    ),
)
"""`make prove-steering` and `make prove-change` play all, longer; `tests/faults` and the day kill workers."""


@pytest.mark.e2e
@pytest.mark.parametrize("scenario", SHORT, ids=lambda scenario: scenario.name)
def test_nothing_is_lost_or_done_twice(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(run(scenario, tmp_path))

    assert outcome.complaints == []


FEW_KEYS = {"rate": 100.0, "keys": 8, "preload": 100, "workers": 2}
"""A key comes again while the worker still reads back what it wrote before."""


@pytest.mark.e2e
def test_the_oracle_finds_a_worker_that_reads_back_its_own_writes(tmp_path: Path) -> None:
    async def run_on(cluster: Cluster) -> None:
        await begin(cluster)
        await asyncio.sleep(5.0)

    setup = Setup(planted=("follows what it owns", "unguarded"), **FEW_KEYS)  # type: ignore[arg-type]
    outcome = asyncio.run(run(Scenario(name="planted", setup=setup, act=run_on), tmp_path))

    assert outcome.verdict.stepped_back["oracle-counts-changelog"] > 0
    assert outcome.verdict.too_low["oracle-counts-changelog"] > 0
    assert [complaint.split(":")[0] for complaint in outcome.complaints][:2] == ["stepped back", "too low"]


@pytest.mark.e2e
def test_such_a_worker_ends_before_it_overwrites_anything(tmp_path: Path) -> None:
    ended: list[int | None] = []
    told: list[int | None] = []

    async def run_on(cluster: Cluster) -> None:
        cluster.load.start()
        workers = list(cluster.alive.values())
        assert await until(lambda: not any(child.alive for child in workers), 60.0), "it works on"
        ended.extend(child.exit_code for child in workers)
        told.extend(statistics.breaches for _, statistics in cluster.agent.statistics.values())
        cluster.load.stop_at_once()
        note_fault(cluster.folder)  # they ended without a commit, as if killed
        cluster.mend()
        for name in list(cluster.alive):
            cluster.start(name)
        await cluster.settled()

    setup = Setup(planted=("follows what it owns",), **FEW_KEYS)  # type: ignore[arg-type]
    outcome = asyncio.run(run(Scenario(name="planted", setup=setup, act=run_on), tmp_path))

    assert all(ended)
    assert all(told), "its agent was not told"
    assert sum(outcome.verdict.stepped_back.values()) == 0
    assert not any(outcome.verdict.lost.values())
    log = (tmp_path / "run" / "logs" / "w0.log").read_text()
    assert "state would be overwritten, this worker ends: changelog records for TP(topic='oracle-" in log


def test_the_judge_sees_what_is_wrong() -> None:
    fine = Verdict(
        sent=3,
        lost={"outputs": 0},
        examples=(),
        duplicated={"outputs": 0},
        repeated_s=None,
        disorder={"totals": 0},
        stepped_back={"counts": 0},
        wrong_keys={"counts": 0},
        too_low={"counts": 0},
        done_again={"counts": 0},
        not_committed={"numbers": 0},
        owners_wrong=0,
    )
    assert fine.complaints(1.5, 60.0, 0) == []
    for wrong in (
        {"lost": {"outputs": 1}},
        {"repeated_s": math.inf},
        {"repeated_s": 1.6},
        {"disorder": {"totals": 1}},
        {"stepped_back": {"counts": 1}},
        {"wrong_keys": {"counts": 1}},
        {"too_low": {"counts": 1}},
        {"done_again": {"counts": 1}},
        {"not_committed": {"numbers": 1}},
        {"owners_wrong": 1},
    ):
        assert Verdict(**{**fine.__dict__, **wrong}).complaints(1.5, 60.0, 0) != [], wrong
    stock = Verdict(
        **{**fine.__dict__, "repeated_s": math.inf, "done_again": {"counts": 9}, "wrong_keys": {"counts": 9}}
    )
    assert stock.complaints(1.5, 60.0, 0, stock=True) == []
    for wrong in ({"stepped_back": {"counts": 1}}, {"owners_wrong": 1}):
        assert Verdict(**{**stock.__dict__, **wrong}).complaints(1.5, 60.0, 0, stock=True) != [], wrong
    again = Verdict(**{**fine.__dict__, "repeated_s": 1.4, "done_again": {"counts": 90}, "wrong_keys": {"counts": 5}})
    assert again.complaints(1.5, 60.0, 1) == []
    assert again.complaints(1.5, 59.0, 1) != []
    assert again.complaints(1.5, 59.0, 1, unfinished=2) == []


def test_old_state_over_newer_is_a_step_back_and_a_new_window_is_none() -> None:
    def rows(*values: tuple[bytes, bytes | None]) -> dict[int, list[tuple[bytes | None, bytes | None, float]]]:
        return {0: [(key, value, 1.0) for key, value in values]}

    assert steps_back(rows((b"a", b"1"), (b"b", b"9"), (b"a", b"2"), (b"a", b"2"), (b"a", None), (b"a", b"3"))) == 0
    assert steps_back(rows((b"a", b"5"), (b"a", b"4"), (b"b", b"1"), (b"a", b"5"), (b"a", b"3"))) == 2


def test_an_app_that_was_replaced_is_judged_by_what_it_has_committed() -> None:
    """It was sent five numbers, has committed three, and two of those in the repartition topic."""
    logs = ("oracle-counts-changelog", "oracle-sums-changelog", "oracle-groups-changelog")
    cluster: Any = SimpleNamespace(
        load=SimpleNamespace(sent=[(f"k{number}", 1.0) for number in range(5)], sent_besides={}),
        changelogs=logs, setup=Setup(), faults=[],
    )  # fmt: skip
    fine = {
        "outputs": [("", 0), ("", 1), ("", 2)],
        "regrouped": [("", 0), ("", 1), ("", 2)],
        "totals": [("", 0), ("", 1)],
        logs[0]: [('"k0"', 1), ('"k1"', 1), ('"k2"', 1)],
        logs[1]: [('"k1"', 1), ('"k2"', 2)],
        logs[2]: [('"g0"', 1), ('"g1"', 1)],
    }

    def complaints(**changed: list[tuple[str, int]]) -> list[str]:
        rows = {
            topic: changed.get(topic.split("-")[-2] if "-" in topic else topic, found) for topic, found in fine.items()
        }
        read = {topic: {0: [(k.encode(), str(v).encode(), 1.0) for k, v in found]} for topic, found in rows.items()}
        inputs = _Inputs(numbers={0, 1, 2}, regrouped={0, 1})
        return [each.split(":")[0] for each in _judged(cluster, read, inputs, {}, 0).complaints(1.5, 60.0, 0)]

    assert complaints() == []
    assert complaints(totals=[("", 0)]) == ["lost"]
    assert complaints(outputs=[("", 0), ("", 2)]) == ["lost", "never done"]
    assert complaints(counts=[('"k0"', 1), ('"k1"', 2), ('"k2"', 1)]) == [
        "done again", "wrong keys",
    ]  # fmt: skip
    assert complaints(counts=[('"k0"', 1), ('"k1"', 1), ('"k2"', 1), ('"k3"', 1)]) == ["done again", "wrong keys"]
    assert complaints(groups=[('"g0"', 1)]) == ["too low", "wrong keys"]
