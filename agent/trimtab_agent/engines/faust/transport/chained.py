"""Lets an agent go on behind `group_by` and `through` after it has failed (patch chained-agent-goes-on).

Such an agent has a chain of streams: the first one reads its topic and sends each event on, the agent reads the last
one.  At an exception Faust stops all of them, and starts the agent again with the first one, which stays stopped.  No
event of its topic is ever acknowledged again, and each rebalance waits for that.  Behind `take` it is not stopped: the
agent then gets the events of the first stream, with keys of other partitions.

Here the agent gets new streams on the old channels, with all that waits in their queues.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

END_LIMIT_S = 5.0
"""How long the streams of an agent that has failed may take to end."""


def chain(stream: Any) -> Iterator[Any]:
    """The streams of an agent: the one that reads its topic first, those behind `group_by` and `through` after it."""
    each = stream.get_root_stream()
    while each is not None:
        yield each
        each = each._next


def go_on_behind_chains(agent: Any, count_as_failed: Callable[[Any], None]) -> None:
    """Start the agent again with a new chain; what has failed on the way to it counts as failed, by its message."""
    make, replace = agent.stream, agent._replace_actor
    before: list[Any] = []

    def make_again(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        _use_channels(made, tuple(before))
        return made

    async def replace_chained(actor: Any, index: int) -> Any:
        streams = list(chain(actor.stream))
        if all(first.channel is second.channel for first, second in pairwise(streams)):
            return await replace(actor, index)
        await _end(streams)
        for stream in streams[:-1]:
            if (event := stream.current_event) is not None and not event.message.acked:
                if _has_failed(stream, actor.crash_reason):
                    count_as_failed(event.message)
                else:
                    stream.channel.queue._queue.appendleft(event)
                stream.current_event = None
        before[:] = streams
        try:
            channel, partitions = streams[0].channel, actor.active_partitions
            return await agent._start_one(index=index, active_partitions=partitions, channel=channel)
        finally:
            before.clear()

    agent.stream, agent._replace_actor = make_again, replace_chained


def _use_channels(stream: Any, before: Sequence[Any]) -> None:
    """Let the chain of a stream have the channels that the one before had: the conductor delivers to these."""
    if len(before) < 2:
        return
    kind, channel = type(stream), before[1].channel

    def go_on(chained: Any) -> Any:
        _use_channels(chained, before[1:])
        return chained

    def group_by(key: Any, *, topic: Any = None, **options: Any) -> Any:
        return go_on(kind.group_by(stream, key, topic=channel, **options))

    def through(_: Any) -> Any:
        return go_on(kind.through(stream, channel))

    stream.group_by, stream.through = group_by, through
    stream.noack = lambda: go_on(kind.noack(stream))


async def _end(streams: Sequence[Any]) -> None:
    """Stop a chain, which may be about to stop already."""
    await streams[0].stop()
    running = [task for stream in streams for task in stream._futures if not task.done()]
    if running:
        await asyncio.wait(running, timeout=END_LIMIT_S)
    for stream in streams[1:]:  # who sends on passes its end on, too
        errors = stream.channel.queue._errors
        kept = [error for error in errors if not isinstance(error, asyncio.CancelledError)]
        errors.clear()
        errors.extend(kept)


def _has_failed(stream: Any, reason: BaseException | None) -> bool:
    """Whether an exception comes from the stream itself, and not from the agent behind it."""
    frames = () if reason is None else traceback.walk_tb(reason.__traceback__)
    drains = type(stream)._passive_drainer.__code__
    return any(frame.f_code is drains and frame.f_locals.get("self") is stream for frame, _ in frames)
