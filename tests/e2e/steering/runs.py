"""Runs scenarios, each with a broker of its own, and says what came of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.scenarios import Scenario
from tests.e2e.steering.verdict import COMMIT_TAKES_S, Pauses, Verdict, judge, pauses, summary
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a scenario did; no complaints = as promised."""

    verdict: Verdict
    complaints: list[str]
    pauses: dict[str, Pauses]
    seconds: float


async def run(scenario: Scenario, folder: Path, *, say: Callable[[str], None] = print) -> Outcome:
    """Run one scenario in a folder of its own.  Raises AssertionError, TimeoutError when it does not end."""
    began = time.monotonic()
    with (
        Processes(folder / "broker-logs") as processes,
        Broker(folder / "broker", processes, settings=scenario.broker) as broker,
    ):
        async with Cluster(scenario.setup, folder / "run", broker, say=say) as cluster:
            await scenario.act(cluster)
            await cluster.stop_load()
            verdict = await judge(cluster)
        setup = scenario.setup
        again_s = setup.commit_interval_s + COMMIT_TAKES_S
        found = pauses(cluster)
        measured = [move.pause_s for move in cluster.moves if move.pause_s is not None]
        if measured:
            found["as the target reports"] = summary(measured)
    return Outcome(
        verdict=verdict,
        complaints=verdict.complaints(again_s, setup.rate, len(cluster.faults), stock=scenario.stock),
        pauses=found,
        seconds=time.monotonic() - began,
    )
