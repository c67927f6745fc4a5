"""Runs scenarios, each with a broker of its own, and says what came of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.run_setup import APP, Setup
from tests.e2e.steering.scenarios import Scenario
from tests.e2e.steering.verdict import COMMIT_TAKES_S, Pauses, Verdict, judge, judge_retired, pauses, summary
from trimtab_agent.engines.faust.local.hop import LocalSettings
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a scenario did; no complaints = as promised.  `retired`: of an app that another one has replaced."""

    verdict: Verdict
    retired: Verdict | None = None
    complaints: list[str]
    pauses: dict[str, Pauses]
    seconds: float
    again_s: float
    """What was done so long before a fault may be done again."""


def unfinished(setup: Setup) -> int:
    """How many events of a worker may wait for the direct events that they have caused."""
    return int(setup.local.get("depth", LocalSettings().depth)) if Feature.LOCAL in setup.features else 0


async def run(scenario: Scenario, folder: Path, *, say: Callable[[str], None] = print) -> Outcome:
    """Run one scenario in a folder of its own.  Raises AssertionError, TimeoutError when it does not end."""
    began = time.monotonic()
    with (
        Processes(folder / "broker-logs") as processes,
        Broker(folder / "broker", processes, settings=scenario.broker) as broker,
    ):
        async with Cluster(scenario.setup, folder / "run", broker, say=say) as cluster:
            await scenario.act(cluster)
            await cluster.load.stop()
            verdict = await judge(cluster)
            retired = await judge_retired(cluster, APP) if cluster.app != APP else None
        setup = scenario.setup
        again_s = setup.commit_interval_s + COMMIT_TAKES_S + cluster.load.late_s(cluster.faults)
        rows = pauses(cluster)
        measured = [move.pause_s for move in cluster.moves if move.pause_s is not None]
        if measured:
            rows["as the target reports"] = summary(measured)
    judged = {"": verdict} if retired is None else {"": verdict, "the app of before: ": retired}
    return Outcome(
        verdict=verdict,
        retired=retired,
        complaints=[
            whose + complaint
            for whose, found in judged.items()
            for complaint in found.complaints(
                again_s, setup.rate, len(cluster.faults), unfinished=unfinished(setup), stock=scenario.stock
            )
        ],
        pauses=rows,
        seconds=time.monotonic() - began,
        again_s=again_s,
    )
