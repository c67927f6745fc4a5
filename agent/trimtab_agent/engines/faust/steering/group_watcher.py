"""Follows the consumer group: prepares the first join, voids hand-overs at a rebalance, resumes steering after it."""

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from faust.stores.rocksdb import Store
from faust.types import TP

from trimtab_agent.engines.faust.group.member_data import read_member
from trimtab_agent.engines.faust.group.operators import Layout, MixedPartitions
from trimtab_agent.engines.faust.safety import own_folder
from trimtab_agent.engines.faust.safety.open_files import TooFewFiles, files_doubt, open_files_limit
from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.steering.lost_offsets import Again, OwnCommits, done_again, set_back, tell_of_reset
from trimtab_agent.engines.faust.steering.parts import SteeringParts, wait_until
from trimtab_agent.engines.faust.tables import other_logs
from trimtab_agent.engines.faust.tables.bulk_restore import FilesFirst
from trimtab_agent.engines.faust.tables.other_logs import ends_of
from trimtab_agent.engines.faust.tables.own_partitions import answer_from_own_partitions
from trimtab_agent.engines.faust.tables.windows import close_each_once
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, KeyGroup, OperatorId

log = logging.getLogger(__name__)

NamedTopics = Callable[[], Mapping[OperatorId, frozenset[str]]]
"""Returns the topics of the named operators.  Called when the app is complete."""
FOLLOW_S = 0.1
"""How often it is looked whether all that this worker takes over is followed, or is its own by now."""
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
        parts: SteeringParts,
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
        self._own_commits = OwnCommits(parts.app)
        self._begun_with: frozenset[KeyGroup] = frozenset()
        """What it was given when it joined last with nothing."""

    async def before_join(self, topics: frozenset[str]) -> None:
        """Learn the app's layout and the placement before the join, because this worker may be elected leader."""
        app, shared = self._parts.app, self._parts.shared
        if shared.refusal is None and (reasons := list(self._unfit_parts())):
            self._withdraw("; ".join(reasons))
        changelogs = frozenset(app.tables.changelog_topics)
        own = {app._leader_assignor._leader_topic_name, *app._reply_consumer._fetchers}  # those of `ask(reply_to=...)`
        try:
            shared.layout = Layout(named=self._named_topics(), sources=topics - changelogs - own, changelogs=changelogs)
        except ValueError as error:
            self._withdraw(str(error))
            return
        if shared.refusal is not None or self._parts.side.started:  # the app may subscribe again, to new topics
            return
        for folder in self._folders():
            if not await own_folder.hold(folder):
                self._withdraw(f"datadir: another worker uses {folder.resolve()}, and each needs a folder of its own")
                return
        # Faust runs the garbage collector for every table at every rebalance, while everything is stopped.  Objects
        # loaded so far never become garbage.  Freezing them cuts a collection from tenths of a second to milliseconds.
        gc.collect()
        gc.freeze()
        FilesFirst(app, self._parts.bulk, other_logs.watch(app, self.tell))
        close_each_once(app, self._parts.ownership, answer_from_own_partitions(app))
        self._parts.work.attach(asyncio.get_running_loop())
        self._parts.side.start()
        limit_s = self._parts.settings.placement_load_limit_s
        if not await wait_until(app, self._parts.side.placement_loaded, limit_s):
            log.warning("the placement topic was not read within %g s; joining the group without a placement", limit_s)
        elif shared.placement is None and await self._is_empty(changelogs):
            shared.empty_at = time.monotonic()

    def _folders(self) -> list[Path]:
        """Where this worker's tables are: in its data folder, or where their `store` says (`rocksdb:///disk/sums`)."""
        app = self._parts.app
        stores = [table.data for table in app.tables.values() if isinstance(table.data, Store)]
        own = [Path(app.conf.tabledir)] if app.tables else []
        return list(dict.fromkeys(own + [store.partition_path(0).parent for store in stores]))

    def topics_known(self) -> None:
        """Compare the files that the databases of key groups need with the limit.  Raises TooFewFiles."""
        app, shared = self._parts.app, self._parts.shared
        if shared.layout is None:
            return
        try:
            operators = shared.layout.operators(app.consumer.thread.partition_count)
        except MixedPartitions:  # told when tables are restored
            return
        databases = {each.id: each.partitions * len(each.changelogs) for each in operators}
        named = in_all = sum(databases.values())
        if (placement := shared.placement) is not None:
            rows = {each.id: placement.owners.get(each.id, ()) for each in operators}
            named = sum(len(each.changelogs) * sum(shared.worker in row for row in rows[each.id]) for each in operators)
        try:
            shared.few_files = files_doubt(named=named, in_all=in_all, limit=open_files_limit())
        except TooFewFiles as error:
            log.critical("%s", error)
            raise

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
        self.keep_commits()
        self._parts.work.count()
        self._parts.standbys.stop()
        if (routes := self._parts.shared.routes) is not None:
            routes.rebalancing()
        self._end_prepared()
        self._parts.pending.adopted = frozenset()

    def _end_prepared(self) -> None:
        self._parts.pending.refuse_prepared(Refusal.GENERATION, "a rebalance came between")

    def stable(self) -> None:
        """Tables are restored and sources are open."""
        parts = self._parts
        if (routes := parts.shared.routes) is not None:
            routes.stable(parts.app.assignor.assigned_actives())
        if parts.shared.layout is not None:
            try:
                parts.ownership.learn(parts.shared.layout)
            except MixedPartitions as error:
                self._withdraw(str(error))
                parts.shared.layout = None
        self._see_standstill()
        self._begun_with = parts.ownership.owned()
        if parts.shared.layout is not None and parts.shared.refusal is None:
            parts.work.start(self._look_for_resets(self._committed()))
            parts.work.start(parts.reconciler.settle())

    @property
    def steers(self) -> bool:
        """Whether this worker is steered, and does not only report."""
        return self._parts.shared.refusal is None

    def against_keeping(self) -> str | None:
        """Why this worker should not keep what it owns through a rebalance; None: nothing speaks against it.

        The first worker of an app that starts is given everything.  It would keep that.
        """
        shared, ownership = self._parts.shared, self._parts.ownership
        owned = ownership.owned() & self._begun_with
        if shared.placement is None:
            return "there is no placement"
        others = [key for key in owned if shared.worker not in shared.placement.of(key.operator, key.partition)]
        return f"it has begun with {len(others)} key groups of workers that were away" if others else None

    def renewed(self, assignment: Any, new: frozenset[TP], generation: int) -> None:
        """A rebalance in place has ended.  This worker owns what it owned before, and takes over what is `new`."""
        parts = self._parts
        parts.app.assignor.on_assignment(assignment)
        parts.ownership.withhold(new)
        if (routes := parts.shared.routes) is not None:
            routes.stable(parts.app.assignor.assigned_actives())
        self._end_prepared()
        key_groups = (parts.ownership.key_group_of(tp.topic, tp.partition) for tp in new)
        parts.pending.adopted = frozenset(key_group for key_group in key_groups if key_group is not None)
        parts.work.start(self._take_over(new, generation))

    async def _take_over(self, new: frozenset[TP], generation: int) -> None:
        """Take over what nobody owned; where that fails, as at any rebalance of Faust."""
        parts, thread = self._parts, self._parts.app.consumer.thread
        try:
            await self._adopt(new, generation)
            if parts.handover.generation == generation:
                parts.pending.adopted = frozenset()
            await parts.app.consumer.commit_refused()
        except GenerationOver:
            return  # whoever is given them next takes them over
        except Exception as fault:
            log.warning("what the group has given to this worker cannot be taken over in place: %r", fault)
            await thread.run(thread.stop_and_rejoin, "what it was given cannot be taken over in place")
            return
        await parts.reconciler.settle()

    async def _adopt(self, new: frozenset[TP], generation: int) -> None:
        parts, began = self._parts, time.monotonic()
        ownership, handover, key_groups = parts.ownership, parts.handover, parts.pending.adopted
        whole = ownership.sources(key_groups) | ownership.changelogs(key_groups)
        if not whole <= new or any(ownership.key_group_of(tp.topic, tp.partition) for tp in new - whole):
            raise ValueError("only parts of key groups are new")
        if own := new - whole:
            await handover.adopt_topics(own, generation)
        warm = frozenset(each for each in key_groups if parts.standbys.is_followed([each]))

        async def take_over() -> None:
            for some in filter(None, (warm, key_groups - warm)):  # what lacks much must not hold up the others
                await handover.adopt(some, generation)
            if key_groups:
                seconds = time.monotonic() - began
                log.info("took over %d key groups, %d of them warm, in %.3f s", len(key_groups), len(warm), seconds)

        await asyncio.gather(take_over(), self._follow(key_groups, generation))

    async def _follow(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Follow the changelogs of these key groups until this worker has all of them."""
        parts = self._parts
        while left := sorted(each for each in key_groups if not parts.ownership.holds(each)):
            parts.handover.check(generation)
            for key_group in left:
                if not parts.standbys.is_followed([key_group]) and not parts.ownership.holds(key_group):
                    await parts.reconciler.warm([key_group], generation)
            await asyncio.sleep(FOLLOW_S)

    async def _look_for_resets(self, committed: Mapping[TP, int | None]) -> None:
        """Tell if inputs are read again; then keep what was committed, to compare with it the next time."""
        parts, now = self._parts, time.time()
        consumer, ownership, others = parts.app.consumer, parts.ownership, parts.app.consumer.set_by_others
        from_start, ends = consumer.from_start, dict(parts.app.tables.recovery.active_highwaters)
        before = {tp: at for tp, at in self._own_commits.read().items() if tp in committed and tp in others}
        logs_end = await ends_of(consumer, before)
        shorter = {tp for tp, end in logs_end.items() if end < before[tp]}
        if found := (
            set_back(ownership, committed, before, logs_end, now)
            or done_again(ownership, from_start, others, ends, now, shorter)
        ):
            self._read_again(found)
        else:
            await tell_of_reset(ownership, consumer.thread, committed, others, self._read_again, time.time)
        self._own_commits.write(committed)

    def keep_commits(self) -> None:
        """Keep what this worker has committed."""
        if self._parts.shared.layout is not None and self._parts.app._consumer is not None:
            self._own_commits.write(self._committed())

    def _read_again(self, found: Again) -> None:
        """Log that inputs are, or may be, read again, and report it for a while."""
        log.warning("%s", found.text)
        self.tell(Trouble.READ_AGAIN if found.certain else Trouble.MAY_READ_AGAIN, found.short)

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
