"""The local hop on a real broker: what must never happen, and that the oracle would see it.

`python -m tests.e2e.steering.prove local` plays all scenarios.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.steering.local_hop import (
    OVERFLOW,
    OVERFLOWING,
    killed,
    leaves_while_busy,
    local,
)
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import SHORT_SESSION, Scenario

KILLED = local(Scenario(name="killed while queues overflow", setup=OVERFLOWING, act=killed(1, burst=150, busy_s=0.2)))
SLOW = {"rate": 10.0, "preload": 60, "slow_s": 0.05, **SHORT_SESSION}
KILLED_LATER = killed(1, rest_s=8.0)
DEFECTS = {
    "opens early": ("out of order", local(OVERFLOW, groups=2)),
    "acks first": (
        "lost",
        local(Scenario(name="killed", setup=Setup(seed=63, **SLOW), act=killed(2, burst=300, busy_s=1.5))),  # type: ignore[arg-type]
    ),
    "leaves at once": (
        "lost",
        local(Scenario(name="moved", setup=Setup(seed=64, **SLOW), act=leaves_while_busy(4))),  # type: ignore[arg-type]
    ),
    "does not settle": (
        "out of order",
        local(Scenario(name="killed", setup=OVERFLOWING, act=killed(2, burst=200, busy_s=0.2))),
    ),
    "releases late": (
        "duplicated",
        local(Scenario(name="killed", setup=Setup(seed=65, rate=60.0, preload=60, **SHORT_SESSION), act=KILLED_LATER)),  # type: ignore[arg-type]
    ),
}
"""Defect -> the complaint that it must bring, and where."""


@pytest.mark.e2e
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    assert asyncio.run(run(KILLED, tmp_path)).complaints == []


@pytest.mark.e2e
@pytest.mark.scenario
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_oracle_finds(defect: str, tmp_path: Path) -> None:
    complaint, scenario = DEFECTS[defect]
    scenario = replace(scenario, setup=replace(scenario.setup, planted=(defect,)))

    assert complaint in [each.split(":")[0] for each in asyncio.run(run(scenario, tmp_path)).complaints]
