"""Defects of the local hop that its oracle must find, planted into a worker by name."""

import asyncio
from collections.abc import Callable
from typing import Any

from trimtab_agent.engines.faust.local.gate import GateState, LocalGate
from trimtab_agent.engines.faust.local.hop import LocalHop, Route

LATE_S = 4.0


def _opens_early() -> None:
    """Events overtake what was sent before by the broker."""

    def try_open(self: LocalGate, given: int) -> bool:
        if self.state is GateState.CLOSED:
            self.state = GateState.OPEN
        return self.state is GateState.OPEN

    LocalGate.try_open = try_open  # type: ignore[method-assign]


def _acks_first() -> None:
    """The cause counts as done while its direct events wait: a kill loses them."""
    release, deliver = LocalHop.release, Route._deliver

    def deliver_and_release(self: Any, topic: Any, gate: Any, cause: Any, *more: Any) -> Any:
        sent = deliver(self, topic, gate, cause, *more)
        if sent is not None:
            release(self._hop, cause)
        return sent

    Route._deliver = deliver_and_release  # type: ignore[assignment, method-assign]
    LocalHop.release = lambda self, cause: None  # type: ignore[method-assign]


def _leaves_at_once() -> None:
    """A key group is given away while direct events for it wait in the queues."""
    LocalHop.unfinished = lambda self, tps: False  # type: ignore[method-assign]


def _does_not_settle() -> None:
    """Events go by the broker while direct events with their key are not finished: after a kill they come first."""

    async def settle(self: Any, gate: Any, key: Any) -> None: ...

    Route._settle = settle  # type: ignore[method-assign]


def _releases_late() -> None:
    """The cause counts as done only seconds after what it has caused: more than promised is done again."""
    release = LocalHop.release

    def late(self: Any, cause: Any) -> None:
        asyncio.get_running_loop().call_later(LATE_S, release, self, cause)

    LocalHop.release = late  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    "opens early": _opens_early,
    "acks first": _acks_first,
    "leaves at once": _leaves_at_once,
    "does not settle": _does_not_settle,
    "releases late": _releases_late,
}
