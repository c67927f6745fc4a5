"""Follows the consumer group: prepares the first join, voids hand-overs at a rebalance, resumes steering after it."""

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from faust.types import TP

from trimtab_agent.engines.faust.group.member_data import read_member
from trimtab_agent.engines.faust.group.operators import Layout, MixedPartitions
from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.steering.lost_offsets import Again, done_again, tell_of_reset
from trimtab_agent.engines.faust.steering.parts import Parts
from trimtab_agent.engines.faust.steering.waiting import wait_until
from trimtab_agent.engines.faust.tables import other_logs
from trimtab_agent.engines.outcomes import Refused
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, OperatorId

log = logging.getLogger(__name__)

NamedTopics = Callable[[], Mapping[OperatorId, frozenset[str]]]
"""Returns the topics of the named operators.  Called when the app is complete."""
StateCheck = Callable[[Collection[str]], Awaitable[bool]]
"""Whether an app with these changelogs has no state yet."""


def _epoch_to_read(user_data: bytes) -> Epoch:
    """The epoch of a placement that a member has read and does not send along; NO_EPOCH if there is none."""
    try:
        data = read_member(user_data)
    except BadMessage:  # the assignor counts it
        return NO_EPOCH
    return Epoch(*data.epoch) if data.placement is None else NO_EPOCH


class GroupWatcher:
    """Implements the transport's `Watcher`."""

    def __init__(
        self,
        parts: Parts,
        *,
        named_topics: NamedTopics,
        unfit_parts: Callable[[], Iterable[str]],
        is_empty: StateCheck,
    ) -> None:
        self._parts = parts
        self._is_empty = is_empty
        self._named_topics = named_topics
        self._unfit_parts = unfit_parts
        self._has_run = False

    async def before_join(self, topics: frozenset[str]) -> None:
        """Learn the app's layout and the placement before the join, because this worker may be elected leader."""
        app, shared = self._parts.app, self._parts.shared
        if shared.refusal is None and (reasons := list(self._unfit_parts())):
            self._withdraw("; ".join(reasons))
        changelogs = frozenset(app.tables.changelog_topics)
        own = {app._leader_assignor._leader_topic_name, app.conf.reply_to}
        try:
            shared.layout = Layout(named=self._named_topics(), sources=topics - changelogs - own, changelogs=changelogs)
        except ValueError as error:
            self._withdraw(str(error))
            return
        if shared.refusal is not None or self._parts.side.started:  # the app may subscribe again, to new topics
            return
        # Faust runs the garbage collector for every table at every rebalance, while everything is stopped.  Objects
        # loaded so far never become garbage.  Freezing them cuts a collection from tenths of a second to milliseconds.
        gc.collect()
        gc.freeze()
        other_logs.watch(app, self.tell)
        self._parts.work.attach(asyncio.get_running_loop())
        self._parts.side.start()
        limit_s = self._parts.settings.placement_load_limit_s
        if not await wait_until(app, self._parts.side.placement_loaded, limit_s):
            log.warning("the placement topic was not read within %g s; joining the group without a placement", limit_s)
        elif shared.placement is None and await self._is_empty(changelogs):
            shared.empty_at = time.monotonic()

    async def before_assignment(self, told: Collection[bytes]) -> None:
        """As leader, wait until this worker has read the newest placement that any member has read.

        A member sends a placement in one record along; of one in parts it sends the epoch.
        """
        parts = self._parts
        newest = max(map(_epoch_to_read, told), default=NO_EPOCH)

        def is_read() -> bool:
            placement = parts.shared.placement
            return placement is not None and placement.epoch >= newest

        if newest > NO_EPOCH and parts.shared.refusal is None:
            await wait_until(parts.app, is_read, parts.settings.assignment_placement_limit_s)

    def rebalancing(self) -> None:
        """The group leaves its generation: prepared hand-overs are void, and only Faust restores state."""
        self._parts.shared.standstill.begin(time.monotonic())
        self._parts.work.count()
        self._parts.standbys.stop()
        outcome = Refused(refusal=Refusal.GENERATION, detail="a rebalance came between")
        self._parts.pending.end_all_prepared(outcome)

    def stable(self) -> None:
        """Tables are restored and sources are open."""
        parts = self._parts
        if parts.shared.layout is not None:
            try:
                parts.ownership.learn(parts.shared.layout)
            except MixedPartitions as error:
                self._withdraw(str(error))
                parts.shared.layout = None
        self._see_standstill()
        if parts.shared.layout is not None and parts.shared.refusal is None:
            recovery, from_start = parts.app.tables.recovery, parts.app.consumer.from_start
            if doubt := done_again(parts.ownership, from_start, recovery.active_highwaters, time.time()):
                self._read_again(doubt)
            else:
                thread, committed = parts.app.consumer.thread, self._committed()
                parts.work.start(tell_of_reset(parts.ownership, thread, committed, self._read_again, time.time))
            parts.work.start(parts.reconciler.settle())
            parts.work.start(parts.windows.follow())

    def _read_again(self, found: Again) -> None:
        """Log that inputs are read again, and report it for a while."""
        log.warning("%s", found.text)
        self.tell(Trouble.READ_AGAIN, found.short)

    def tell(self, trouble: Trouble, text: str | None) -> None:
        """Report a trouble for a while, or no more."""
        self._parts.shared.troubles.tell(trouble, text)

    def _committed(self) -> dict[TP, int | None]:
        """The offsets at which this generation goes on, of the sources of key groups that this worker owns."""
        ownership, committed = self._parts.ownership, self._parts.app.consumer._committed_offset
        return {tp: committed.get(tp) for tp in ownership.sources(ownership.owned())}

    def _see_standstill(self) -> None:
        """Note for how long inputs have stood still.  Those of an app without state had not begun."""
        shared, now = self._parts.shared, time.monotonic()
        first, self._has_run = not self._has_run, True
        begins = first and shared.empty_at is not None
        owned = None if shared.layout is None else len(self._parts.ownership.owned())
        shared.standstill.end(now, 0 if begins and owned is not None else owned)

    def breached(self) -> None:
        """Count a breach of state; the worker is about to end."""
        self._parts.shared.breaches += 1

    def _withdraw(self, reason: str) -> None:
        """Stop steering after the app turned out to be unfit, and only measure.

        As the leader of its group this worker assigns as stock Faust does.
        """
        shared = self._parts.shared
        shared.refuse(reason)
        self._parts.app.assignor.replicas = shared.faust_standbys
