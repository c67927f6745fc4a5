"""Follows what the consumer group does: prepares the first join, voids hand-overs at a rebalance, goes on after it."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Mapping

from trimtab_agent.engines.faust.group.operators import Layout, MixedPartitions
from trimtab_agent.engines.faust.steering.parts import Parts
from trimtab_agent.engines.faust.steering.waiting import wait_until
from trimtab_agent.engines.outcomes import Refused
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import OperatorId

log = logging.getLogger(__name__)

NamedTopics = Callable[[], Mapping[OperatorId, frozenset[str]]]
"""The topics of the operators that the author named; called when the app is complete."""


class GroupWatcher:
    """Implements the transport's `Watcher`."""

    def __init__(
        self,
        parts: Parts,
        *,
        named_topics: NamedTopics,
        unfit_tables: Callable[[], Iterable[str]],
    ) -> None:
        self._parts = parts
        self._named_topics = named_topics
        self._unfit_tables = unfit_tables

    async def before_join(self, topics: frozenset[str]) -> None:
        """Learn what the app consists of, and the placement: this worker may be elected leader."""
        app, shared = self._parts.app, self._parts.shared
        if shared.refusal is not None:
            return
        if reasons := list(self._unfit_tables()):
            self._withdraw("; ".join(reasons))
            return
        changelogs = frozenset(app.tables.changelog_topics)
        own = {app._leader_assignor._leader_topic_name, app.conf.reply_to}
        try:
            shared.layout = Layout(named=self._named_topics(), sources=topics - changelogs - own, changelogs=changelogs)
        except ValueError as error:
            self._withdraw(str(error))
            return
        if self._parts.side.started:  # subscribed again, to topics that came later
            return
        # Faust collects garbage for every table at every rebalance, with everything stopped.  What has been loaded by
        # now never becomes garbage; not looking at it makes that milliseconds instead of tenths of seconds.
        gc.collect()
        gc.freeze()
        self._parts.work.attach(asyncio.get_running_loop())
        self._parts.side.start()
        limit_s = self._parts.settings.placement_load_limit_s
        if not await wait_until(app, self._parts.side.placement_loaded, limit_s):
            log.warning("the placement topic was not read within %g s; joining the group without a placement", limit_s)

    def rebalancing(self) -> None:
        """The group leaves its generation: what was prepared in it is void, and Faust alone restores state."""
        self._parts.work.count()
        self._parts.standbys.stop()
        outcome = Refused(refusal=Refusal.GENERATION, detail="a rebalance came between")
        self._parts.pending.end_all_prepared(outcome)

    def stable(self) -> None:
        """Tables are restored, sources are open."""
        parts = self._parts
        if parts.shared.layout is not None:
            try:
                parts.ownership.learn(parts.shared.layout)
            except MixedPartitions as error:
                self._withdraw(str(error))
            parts.work.start(parts.reconciler.settle())
            parts.work.start(parts.windows.follow())

    def breached(self) -> None:
        """Count it; the worker is about to end."""
        self._parts.shared.breaches += 1

    def _withdraw(self, reason: str) -> None:
        """Refuse now that the app is known: the group assigns as stock Faust does."""
        shared = self._parts.shared
        shared.refuse(reason)
        shared.layout = None
        self._parts.app.assignor.replicas = shared.faust_standbys
