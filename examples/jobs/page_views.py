"""The simple page view count: source, view, count and sink.

Source and sink get their records from the same place of the operator before (the paper's local stream partitioning),
count gets them by page.
"""

import time
from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, app_of, local_of, opposite, source_of, table_of, topic_of
from jobs.latencies import LatencyLog
from jobs.views import CLICKS, COUNTED, COUNTS, LOOKED, VIEWS, viewed
from trimtab_agent.engines.faust import install

app = app_of("views", linger_s=0.0)
clicks, looked, views, counted = (
    source_of(app, CLICKS), topic_of(app, LOOKED), topic_of(app, VIEWS), topic_of(app, COUNTED))  # fmt: skip
counts = table_of(app, COUNTS)
latencies = LatencyLog()


@app.agent(clicks, name="source")  # type: ignore[untyped-decorator]
async def source(stream: Any) -> None:
    """Pass each click on, with the time at which it was taken."""
    async for event in stream.events():
        await looked.send(value=[time.time(), event.value.decode()], partition=opposite(event.message.partition))


@app.agent(looked, name="view")  # type: ignore[untyped-decorator]
async def view(stream: Any) -> None:
    """Extract page and user."""
    async for taken_s, click in stream:
        page, user, _ = viewed(click)
        await views.send(key=page, value=[taken_s, user], partition=partition_of(page, PARTITIONS))


@app.agent(views, name="count")  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    """Count the views of each page."""
    async for event in stream.events():
        page = event.key.decode()
        found = (counts.get(page) or [0])[0] + 1
        counts[page] = [found]
        await counted.send(value=[event.value[0], found], partition=opposite(event.message.partition))


@app.agent(counted, name="sink")  # type: ignore[untyped-decorator]
async def sink(stream: Any) -> None:
    """Note how old each click is."""
    async for taken_s, _ in stream:
        latencies.note(taken_s)


install(
    app,
    operators={"source": [clicks], "view": [looked], "count": [views, counts], "sink": [counted]},
    local=local_of(looked, views, counted),
)
