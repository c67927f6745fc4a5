"""Real job 1: a GeoHash per edit, the most edited articles by cell and minute, and those of all cells.

The three operators are partitioned by things that do not depend on each other, so there is little to collocate.
"""

from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, STEERING, app_of, local_of, source_of, table_of, topic_of, work
from jobs.edits import ARTICLES, CELLS, EDITS, PLACED, TOPPED, placed, plus
from trimtab_agent.engines.faust import install

app = app_of("job1")
edits, by_cell, by_article = source_of(app, EDITS), topic_of(app, PLACED), topic_of(app, TOPPED)
cells, articles = table_of(app, CELLS), table_of(app, ARTICLES)


@app.agent(edits, name="geohash")  # type: ignore[untyped-decorator]
async def geohash(stream: Any) -> None:
    """Find the cell of each edit."""
    async for edit in stream:
        work(edit)
        cell, article, window = placed(edit.decode())
        await by_cell.send(key=cell, value=[article, window], partition=partition_of(cell, PARTITIONS))


@app.agent(by_cell, name="top")  # type: ignore[untyped-decorator]
async def top_of_cell(stream: Any) -> None:
    """Count the edits of each article by cell and minute."""
    async for cell, (article, window) in stream.items():
        work(cell)
        key = f"{cell.decode()}/{window}"
        cells[key] = plus(cells.get(key), article)
        await by_article.send(key=article, value=window, partition=partition_of(article, PARTITIONS))


@app.agent(by_article, name="global")  # type: ignore[untyped-decorator]
async def top_of_all(stream: Any) -> None:
    """Count the edits of each article and minute in all cells."""
    async for article, window in stream.items():
        work(article)
        key = f"{article.decode()}/{window}"
        articles[key] = [(articles.get(key) or [0])[0] + 1]


install(
    app,
    operators={"geohash": [edits], "top": [by_cell, cells], "global": [by_article, articles]},
    settings=STEERING,
    local=local_of(by_cell, by_article),
)
