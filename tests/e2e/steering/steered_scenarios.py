"""What is done to a running cluster; each scenario leaves it settled."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steered_cluster import SOURCE, Cluster, Setup, worker

Act = Callable[[Cluster], Awaitable[None]]


async def begin(cluster: Cluster) -> None:
    """Wait until the first load is worked off, then go on at the given rate."""
    await cluster.settled(90.0)
    await cluster.worked_off()
    cluster.start_load()
    await asyncio.sleep(1.0)


async def hand_overs(cluster: Cluster, count: int, *, most: int = 1, pause_s: float = 0.3) -> int:
    """So many hand-overs of 1 to `most` key groups; returns how many were done."""
    done = 0
    for _ in range(count):
        if await cluster.hand_over(*cluster.pick(most)):
            done += 1
        else:
            await cluster.settled()
        await asyncio.sleep(pause_s)
    return done


def moves(singles: int, batches: int) -> Act:
    """Hand-overs, single and batched, inside one generation."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        await cluster.be_calm(4.0)
        before = cluster.generations()
        done = await hand_overs(cluster, singles, pause_s=1.0) + await hand_overs(cluster, batches, most=4, pause_s=1.0)
        await cluster.settled()
        assert done == singles + batches, f"{done} of {singles + batches} hand-overs were done"
        assert cluster.generations() == before, f"generation {before} became {cluster.generations()}"

    return act


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A name, a set-up, what to do, and what is promised."""

    name: str
    setup: Setup
    act: Act
    duplicates: bool = False
    """Whether somebody is killed or stopped: then events of one commit interval may be done twice."""
