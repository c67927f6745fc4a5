"""Lets an agent go on behind `group_by`, `through` and `take` after it has failed (patch chained-agent-goes-on).

Behind `group_by` and `through` an agent has a chain of streams: the first one reads its topic and sends each event on,
the agent reads the last one.  At an exception Faust stops all of them, and starts the agent again with the first one,
which stays stopped.  No event of its topic is ever acknowledged again, and each rebalance waits for that.  Behind
`take` in such a chain it is not stopped: the agent then gets the events of the first stream, with keys of other
partitions.  `take` itself has taken one more event into the batch that failed, which nobody gets or acknowledges.

Here the agent gets new streams on the old channels, with all that waits in their queues, and with the events that were
on their way to it.
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


def in_batch(stream: Any) -> list[Any] | None:
    """The events of the batch that `take` and the like gather from a stream; None if there is none."""
    for processor in stream._processors:
        if getattr(processor, "__name__", "") == "add_to_buffer":
            known = dict(zip(processor.__code__.co_freevars, processor.__closure__ or (), strict=True))
            return list(known["event_add"].cell_contents.__self__) if "event_add" in known else []
    return None


class Renewal:
    """Starts an agent that has failed again with new streams, where it has more than the one that it reads."""

    def __init__(self, agent: Any, count_as_failed: Callable[[Any], None]) -> None:
        """`count_as_failed` is told messages."""
        self._agent = agent
        self._count_as_failed = count_as_failed
        self._make, self._replace = agent.stream, agent._replace_actor
        self._before: list[Any] = []
        self._begun: dict[Any, list[tuple[Any, Any]]] = {}
        """By the first stream of a failed actor: queues, and events that go back there."""
        self._ending: dict[Any, list[Any]] = {}
        """By the same: the tasks that send on or gather."""
        agent.stream, agent._replace_actor = self._make_again, self._replace_failed

    def stop(self, stream: Any, reason: BaseException | None) -> None:
        """Stop what sends events on to the agent or gathers them, before anything else can run."""
        streams = list(chain(stream))
        batch = in_batch(streams[-1])
        if batch is None and all(first.channel is second.channel for first, second in pairwise(streams)):
            return
        back = self._begun[streams[0]] = []
        ending = self._ending[streams[0]] = []
        for each in streams if batch is not None else streams[:-1]:
            event = each.current_event
            if event is not None and not event.message.acked and not any(event is other for other in batch or ()):
                if _has_failed(each, reason):
                    self._count_as_failed(event.message)
                else:
                    back.append((each.channel.queue, event))
            for task in list(each._futures):
                task.cancel()
                ending.append(task)

    def goes_back(self, stream: Any) -> set[int]:
        """The ids of the messages that the agent gets again."""
        return {id(event.message) for _, event in self._begun.get(next(chain(stream)), ())}

    def _make_again(self, *arguments: Any, **options: Any) -> Any:
        made = self._make(*arguments, **options)
        _use_channels(made, tuple(self._before))
        return made

    async def _replace_failed(self, actor: Any, index: int) -> Any:
        streams = list(chain(actor.stream))
        back = self._begun.pop(streams[0], None)
        if back is None:
            return await self._replace(actor, index)
        await _end(streams, self._ending.pop(streams[0]))
        for queue, event in back:
            queue._queue.appendleft(event)
        self._before[:] = streams
        try:
            return await self._agent._start_one(
                index=index, active_partitions=actor.active_partitions, channel=streams[0].channel
            )
        finally:
            self._before.clear()


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


async def _end(streams: Sequence[Any], tasks: Sequence[Any]) -> None:
    """Stop a chain, which may be about to stop already."""
    if tasks:
        await asyncio.wait(tasks, timeout=END_LIMIT_S)
    await streams[0].stop()
    for stream in streams:  # who sends on or gathers passes its end on, too
        errors = stream.channel.queue._errors
        kept = [error for error in errors if not isinstance(error, asyncio.CancelledError)]
        errors.clear()
        errors.extend(kept)


def _has_failed(stream: Any, reason: BaseException | None) -> bool:
    """Whether an exception comes from the stream itself, and not from the agent behind it."""
    frames = () if reason is None else traceback.walk_tb(reason.__traceback__)
    drains = type(stream)._passive_drainer.__code__
    return any(frame.f_code is drains and frame.f_locals.get("self") is stream for frame, _ in frames)
