"""Lets an agent go on behind `group_by`, `through` and `take` after it has failed (patch chained-agent-goes-on).

Behind `group_by` and `through` an agent has a chain of streams: the first one reads its topic and sends each event on,
the agent reads the last one.  At an exception Faust stops all of them, and starts the agent again with the first one,
which stays stopped.  No event of its topic is ever acknowledged again, and each rebalance waits for that.  Behind
`take` in such a chain it is not stopped: the agent then gets the events of the first stream, with keys of other
partitions.  `take` itself has taken one more event into the batch that failed, which nobody gets or acknowledges.

Here the agent gets new streams on the old channels, with all that waits in their queues, and with the events that were
on their way to it.

Where `take` gathers, a record that cannot be decoded, or a processor that fails (`stream.filter`), ends the stream and
with it the agent, without an exception or a word: it takes no event any more.  Here it fails with that error.

Where two actors of an agent (`concurrency`) fail at once, as when a service is down, Faust ends the worker.  Here they
start again.

Where an agent awaits what somebody has cancelled (a task, a future of a library), Faust takes that for its own
cancellation.  Here the agent has failed.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from faust.agents import Agent
from faust.exceptions import DecodeError

END_LIMIT_S = 5.0
"""How long the streams of an agent that has failed may take to end."""
AGAIN_S = 0.05
"""How soon an agent starts again after a record that cannot be decoded.  Where another one follows, Faust takes 5 s for
each.  It takes so long for other errors too; during an outage that leaves fewer events out."""


def chain(stream: Any) -> Iterator[Any]:
    """The streams of an agent: the one that reads its topic first, those behind `group_by` and `through` after it."""
    each = stream.get_root_stream()
    while each is not None:
        yield each
        each = each._next


def in_batch(stream: Any, *, by_hand: bool = True) -> list[Any] | None:
    """The events of the batch that `take` and the like gather from a stream; None if there is none.

    `by_hand` = also of `noack_take`, which keeps no events that it has given to its agent.
    """
    for processor in _gathering(stream):
        if by_hand or "noack" not in processor.__qualname__:
            return list(_events(processor))
    return None


def gathered(stream: Any) -> Sequence[Any]:
    """The events of the batch that an agent has or will get, by its stream: the list itself, looked at often."""
    return next(map(_events, _gathering(stream.get_active_stream())), ())


def _events(processor: Any) -> Sequence[Any]:
    add = _variables(processor).get("event_add")
    return () if add is None else add.__self__


def waiting_in_batch(stream: Any) -> tuple[list[Any], list[Any]]:
    """The batch that `take` and the like gather from a stream, its values and its events, until the agent gets it.

    Both are the lists themselves.  They are empty if there is none, or if it is full.
    """
    for known in map(_variables, _gathering(stream)):
        given = known.get("buffer_consuming")
        if "event_add" in known and (given is None or given.done()) and not known["buffer_full"].is_set():
            return known["buffer_add"].__self__, known["event_add"].__self__
    return [], []


def only_gathers(stream: Any) -> bool:
    """Whether nothing but `take` and the like sees the events of a stream before its agent does."""
    own = (*_gathering(stream), Agent._maybe_unwrap_reply_request)
    return all(getattr(each, "__func__", each) in own for each in stream._processors)


def _gathering(stream: Any) -> list[Any]:
    return [each for each in stream._processors if getattr(each, "__name__", "") == "add_to_buffer"]


def _variables(function: Any) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


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
        self._thrown: BaseException = RuntimeError("the agent's stream has ended by itself")
        """What has ended the gathering of a batch last."""
        self._supervise = agent._new_supervisor
        agent._new_supervisor = self._new_patient_supervisor
        agent.stream, agent._replace_actor = self._make_again, self._replace_failed
        agent._execute_actor = self._execute_to_its_end

    def stop(self, stream: Any, reason: BaseException | None) -> None:
        """Stop what sends events on to the agent or gathers them, before anything else can run."""
        streams = list(chain(stream))
        batch = in_batch(streams[-1])
        alone = all(first.channel is second.channel for first, second in pairwise(streams))
        if batch is None and alone and not _has_ended(streams):
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
        return self._gather_to_its_end(made)

    def _gather_to_its_end(self, stream: Any) -> Any:
        """Keep an error that ends what gathers a batch: Faust gives it to whatever reads the same queue next."""
        enable, clone = stream._enable_passive, stream.clone

        def enable_passive(channel: Any, **options: Any) -> None:
            if channel.queue is stream.channel.queue and not stream._passive:
                stream._passive = True
                stream.add_future(self._gather(stream))
            else:
                enable(channel, **options)

        stream._enable_passive = enable_passive
        stream.clone = lambda **changed: self._gather_to_its_end(clone(**changed))
        return stream

    async def _gather(self, stream: Any) -> None:
        """Gather a batch, as Faust does; after an error end the stream once the agent has done the batch that it has.

        Faust ends it at once, and acknowledges what the agent is working on.
        """
        stream._passive_started.set()
        try:
            await stream.maybe_start()  # else its iterator would stop it
            async for _ in stream:
                pass
        except Exception as error:
            self._thrown = error
            for processor in _gathering(stream):
                if (given := _variables(processor).get("buffer_consuming")) is not None:
                    await asyncio.wait([given])
            await stream.stop()
        finally:
            stream._passive = False

    def _new_patient_supervisor(self) -> Any:
        """One that waits before it starts too many actors again; Faust's ends the worker if it starts two in 10 ms."""
        made = self._supervise()
        made._bucket.raises = None
        return made

    async def _execute_to_its_end(self, function: Any, actor: Any) -> None:
        async def fail_with_its_stream() -> None:
            try:
                await function
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise RuntimeError("the agent has awaited what was cancelled") from error
            stops = self._agent.should_stop or self._agent.app.should_stop
            if _has_ended(chain(actor.stream)) and not stops:
                raise self._thrown

        kind = type(self._agent)  # as it is now: it may be metered since
        await kind._execute_actor(self._agent, fail_with_its_stream(), actor)
        if isinstance(actor.crash_reason, DecodeError):
            self._agent.loop.call_later(AGAIN_S * self._agent.concurrency, self._agent.supervisor.wakeup)

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


def _has_ended(streams: Iterable[Any]) -> bool:
    return any(stream.should_stop for stream in streams)


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
