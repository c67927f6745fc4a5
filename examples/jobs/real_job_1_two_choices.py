"""Real job 1 with two partitions per key (PoTC): each counts a part, and what has ended is merged per window.

Who sends chooses, so nothing needs to move; merging is work besides, and no choice balances it.
"""

from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, STEERING, app_of, local_of, source_of, table_of, topic_of, work
from jobs.edits import (
    ARTICLES,
    CELLS,
    EDITS,
    MERGED,
    PARTS,
    PLACED,
    TOPPED,
    EndedWindows,
    TwoChoices,
    merged,
    placed,
    plus,
)  # fmt: skip
from trimtab_agent.engines.faust import install

app = app_of("job1-two-choices")
edits, by_cell, by_article, parts = (
    source_of(app, EDITS), topic_of(app, PLACED), topic_of(app, TOPPED), topic_of(app, PARTS))  # fmt: skip
cells, articles, whole = table_of(app, CELLS), table_of(app, ARTICLES), table_of(app, MERGED)
of_cells, of_articles = TwoChoices(PARTITIONS), TwoChoices(PARTITIONS)
ended_cells, ended_articles = EndedWindows(), EndedWindows()


@app.agent(edits, name="geohash")  # type: ignore[untyped-decorator]
async def geohash(stream: Any) -> None:
    """Find the cell of each edit."""
    async for edit in stream:
        work(edit)
        cell, article, window = placed(edit.decode())
        await by_cell.send(key=cell, value=[article, window], partition=of_cells.partition(cell))


@app.agent(by_cell, name="top")  # type: ignore[untyped-decorator]
async def top_of_cell(stream: Any) -> None:
    """Count the edits of each article by cell and window, as far as they come here."""
    async for event in stream.events():
        work(event.key)
        article, window = event.value
        key, partition = f"{event.key.decode()}/{window}", event.message.partition
        cells[key] = plus(cells.get(key), article)
        await by_article.send(key=article, value=window, partition=of_articles.partition(article))
        for ended in ended_cells.after(partition, key, window):
            await send_part(ended, partition, cells[ended])


@app.agent(by_article, name="global")  # type: ignore[untyped-decorator]
async def top_of_all(stream: Any) -> None:
    """Count the edits of each article and window in all cells, as far as they come here."""
    async for event in stream.events():
        work(event.key)
        window = event.value
        key, partition = f"{event.key.decode()}/{window}", event.message.partition
        articles[key] = [(articles.get(key) or [0])[0] + 1]
        for ended in ended_articles.after(partition, key, window):
            await send_part(ended, partition, articles[ended])


async def send_part(key: str, partition: int, part: list[Any]) -> None:
    """Send what a partition has counted of a key to where it is merged."""
    await parts.send(key=key, value=[partition, part], partition=partition_of(key.partition("/")[0], PARTITIONS))


@app.agent(parts, name="merge")  # type: ignore[untyped-decorator]
async def merge(stream: Any) -> None:
    """Merge what both partitions have counted."""
    async for key, (partition, part) in stream.items():
        work(key)
        whole[key.decode()] = merged(whole.get(key.decode()), partition, part)


install(
    app,
    operators={
        "geohash": [edits],
        "top": [by_cell, cells],
        "global": [by_article, articles],
        "merge": [parts, whole],
    },
    settings=STEERING,
    local=local_of(by_cell, by_article, parts),
)
