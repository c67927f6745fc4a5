"""Windowed tables of one source: tumbling and hopping by the events' time, and a backfill of the day before.

Keys are numbers modulo `KEYS`, so each is in every partition.  The app tells a file which windows were closed.
"""

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import faust

from tests.e2e.steering.app_names import Feature

KEYS = 5
BACKFILL_S = 1.0 / 16.0
"""Time between two numbers of the backfill; live they have less than that, so it catches up."""
DAY_S = 86_400.0
LIVE, HOPS, PAST = "live", "hops", "past"
WINDOWS = {LIVE: (2.0, 2.0), HOPS: (4.0, 2.0), PAST: (10.0, 10.0)}
"""Size and step in seconds."""
EXPIRES_S = 2.0


def time_in(table: str, number: int, sent_at: float, began: float) -> float:
    """When a number counts as sent, in this table (epoch seconds)."""
    return began - DAY_S + number * BACKFILL_S if table == PAST else sent_at


def ranges(table: str, at: float) -> list[float]:
    """The starts of the windows that hold this time."""
    size, step = WINDOWS[table]
    last = at // step * step
    return [last - back * step for back in range(int(size / step))]


def closed(folder: Path) -> list[tuple[tuple[str, int, int, float], int]]:
    """What all workers were told: table, partition, key and start of a window, and how many events were in it."""
    whole = [file.read_text().rpartition("\n")[0] for file in folder.glob("*.closed")]  # the next line may be begun
    lines = [line for text in whole for line in text.splitlines()]
    return [((table, partition, key, start), count) for table, partition, key, start, count in map(json.loads, lines)]


def count_one(before: list[int], partition: list[int]) -> list[int]:
    """Values are partition and count."""
    return [partition[0], (before[1] if before else 0) + 1]


def main() -> Any:
    setup, worker = json.loads(os.environ["ORACLE_SETUP"]), os.environ["TRIMTAB_WORKER"]
    folder, stock = Path(setup["folder"]), Feature.STOCK in setup["features"]
    app = faust.App(
        setup["app"],
        broker=f"kafka://{setup['bootstrap']}",
        store="rocksdb://",
        datadir=str(folder / worker),
        canonical_url=f"http://{worker}:6066",
        web_enabled=False,
        topic_partitions=setup["partitions"],
        topic_replication_factor=1,
        topic_disable_leader=True,
        broker_commit_interval=setup["commit_interval_s"],
        broker_session_timeout=setup["session_s"],
        broker_heartbeat_interval=setup["heartbeat_s"],
        broker_rebalance_timeout=20.0,
        table_cleanup_interval=1.0,
        table_standby_replicas=1,
    )
    numbers = app.topic("numbers", key_type=str, value_type=int, key_serializer="raw", value_serializer="json")
    small = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20}
    began = float(os.environ["WINDOWS_BEGAN"])

    def table(name: str) -> Any:
        async def tell(key: Any, value: Any) -> None:
            await asyncio.sleep(0.01)  # as whoever sends or writes to a database
            with (folder / f"{worker}.closed").open("a") as told:
                told.write(json.dumps([name, value[0], key[0], key[1][0], value[1]]) + "\n")

        size, step = WINDOWS[name]
        made = app.Table(
            name,
            default=list,
            key_type=None if stock else int,  # stock Faust cannot restore others
            value_type=None,
            options=dict(small),
            partitions=setup["partitions"],
            on_window_close=tell,
        )
        return made.hopping(size, step, expires=EXPIRES_S).relative_to(
            lambda event=None: time_in(name, event.value, event.message.timestamp, began)
        )

    tables = [table(name) for name in WINDOWS]

    @app.agent(numbers)
    async def count(stream: Any) -> None:
        async for event in stream.events():
            for each in tables:
                each[event.value % KEYS].apply(count_one, [event.message.partition])

    if not stock:
        from trimtab_agent.engines.faust import install

        install(app)
    return app


def expected(sent: Iterable[tuple[int, float, int]], began: float) -> dict[tuple[str, int, int, float], int]:
    """What each window holds; `sent` = number, time and partition of each event."""
    windows: dict[tuple[str, int, int, float], int] = {}
    for number, at, partition in sent:
        for table in WINDOWS:
            for start in ranges(table, time_in(table, number, at, began)):
                this = table, partition, number % KEYS, start
                windows[this] = windows.get(this, 0) + 1
    return windows


if __name__ == "__main__":
    main().main()
