"""The unique page view count: as the simple one, but count sends the users of each page when a window has ended."""

import time
from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, app_of, local_of, opposite, source_of, table_of, topic_of
from jobs.latencies import LatencyLog
from jobs.views import CLICKS, COUNTED, LOOKED, VIEWS, VISITORS, viewed, with_visitor
from trimtab_agent.engines.faust import install

app = app_of("unique", linger_s=0.0)
clicks, looked, views, counted = (
    source_of(app, CLICKS), topic_of(app, LOOKED), topic_of(app, VIEWS), topic_of(app, COUNTED))  # fmt: skip
visitors = table_of(app, VISITORS)
latencies = LatencyLog()


@app.agent(clicks, name="source")  # type: ignore[untyped-decorator]
async def source(stream: Any) -> None:
    """Pass each click on, with the time at which it was taken."""
    async for event in stream.events():
        await looked.send(value=[time.time(), event.value.decode()], partition=opposite(event.message.partition))


@app.agent(looked, name="view")  # type: ignore[untyped-decorator]
async def view(stream: Any) -> None:
    """Extract page, user and window."""
    async for taken_s, click in stream:
        page, user, window = viewed(click)
        await views.send(key=page, value=[taken_s, user, window], partition=partition_of(page, PARTITIONS))


@app.agent(views, name="count")  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    """Collect the users of each page and window; note how old each click is, and send a window that has ended."""
    async for event in stream.events():
        page, (taken_s, user, window) = event.key.decode(), event.value
        key = f"{page}/{window}"
        before = visitors.get(key)
        visitors[key] = with_visitor(before, user)
        latencies.note(taken_s)
        ended = visitors.get(f"{page}/{window - 1}") if before is None else None
        if ended is not None:
            await counted.send(value=[page, window - 1, len(ended[1])], partition=opposite(event.message.partition))


@app.agent(counted, name="sink")  # type: ignore[untyped-decorator]
async def sink(stream: Any) -> None:
    """Take the results."""
    async for _ in stream:
        pass


install(
    app,
    operators={"source": [clicks], "view": [looked], "count": [views, visitors], "sink": [counted]},
    local=local_of(looked, views, counted),
)
