"""Defects of joins in place that the oracle must find, planted into a worker by name."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka.errors import IllegalGenerationError, KafkaError, NoError, UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.structs import OffsetAndMetadata

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.transport.in_place import JoinInPlace
from trimtab_agent.engines.faust.transport.thread import SteeredThread

AGAIN_S, AGAIN_FOR = 0.05, 200


def _deaf() -> None:
    """A member goes on to work after it was thrown out: it has no fence, and hears of nothing."""
    Fence.closed = lambda self, now: self.broken  # type: ignore[method-assign]
    heard = JoinInPlace.heard

    def hear_nothing(self: Any, request: Any, response: Any, sent_at: float) -> None:
        out = (UnknownMemberIdError.errno, IllegalGenerationError.errno)
        if isinstance(request, HeartbeatRequest) and response.error_code in out:
            response.error_code = NoError.errno
        if isinstance(request, OffsetCommitRequest) and any(c in out for _, rows in response.topics for _, c in rows):
            raise IllegalGenerationError
        heard(self, request, response, sent_at)

    JoinInPlace.heard = hear_nothing  # type: ignore[method-assign]


def _proves_again() -> None:
    """The commit that proves a hand-over is sent again and again, in whatever generation the group is by then."""
    prove = SteeredThread.prove_by_commit

    async def prove_again(self: Any, generation: int, offsets: Any, limit_s: float) -> None:
        await prove(self, generation, offsets, limit_s)
        wire = {tp: OffsetAndMetadata(offset, "trimtab") for tp, offset in offsets.items()}

        async def again() -> None:
            for _ in range(AGAIN_FOR):
                await asyncio.sleep(AGAIN_S)
                try:
                    await self._consumer._coordinator._do_commit_offsets(None, wire)
                except KafkaError:
                    continue

        asyncio.run_coroutine_threadsafe(again(), self.thread_loop)

    SteeredThread.prove_by_commit = prove_again  # type: ignore[method-assign]


IN_PLACE_DEFECTS: dict[str, Callable[[], None]] = {"hears nothing": _deaf, "proves again": _proves_again}
