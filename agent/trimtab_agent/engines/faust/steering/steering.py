"""Assembles the steering part of the plug-in for one app in one worker process."""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.engines.faust.handover.handover import KeyGroupHandover
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.steering.background_work import BackgroundWork
from trimtab_agent.engines.faust.steering.command_executor import FaustCommandExecutor
from trimtab_agent.engines.faust.steering.group_watcher import GroupWatcher, NamedTopics
from trimtab_agent.engines.faust.steering.handover_receiver import HandoverReceiver
from trimtab_agent.engines.faust.steering.parts import SteeringParts, wait_until
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_agent.engines.faust.steering.side_services import SideServices
from trimtab_agent.engines.faust.steering.standby_reconciler import StandbyReconciler
from trimtab_agent.engines.faust.steering.worker_status import FaustWorkerStatus
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.tables.copies import DiskCopies
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.client import Connection
from trimtab_protocol.messages.handover import HandoverRecord

log = logging.getLogger(__name__)

STATE_LIMIT_S = 5.0
"""How long the broker may take to say whether the app has state."""
SETTLE_LIMIT_S = 10.0
"""How long the reconciliation of standbys waits for a rebalance to end."""


async def is_empty(connection: Connection, group: str, changelogs: Collection[str]) -> bool:
    """Whether the group has committed no offset and no changelog has had a record; False if that cannot be learned.

    A changelog that does not exist yet has had none.  One whose records were all deleted has state: the offsets at
    which its partitions end are not 0.
    """
    try:
        async with asyncio.timeout(STATE_LIMIT_S):
            return not await _has_committed(connection, group) and not await _have_records(connection, changelogs)
    except Exception as error:  # whatever it is, the app then counts as one that runs
        log.warning("it is not known whether the app has state, so its placement is adopted: %r", error)
        return False


async def _has_committed(connection: Connection, group: str) -> bool:
    admin = AIOKafkaAdminClient(**connection)
    try:
        await admin.start()
        return any(found.offset >= 0 for found in (await admin.list_consumer_group_offsets(group)).values())
    finally:
        await admin.close()


async def _have_records(connection: Connection, changelogs: Collection[str]) -> bool:
    reader = AIOKafkaConsumer(**connection, enable_auto_commit=False)
    try:
        await reader.start()
        existing = await reader.topics()
        partitions = [
            TopicPartition(topic, partition)
            for topic in changelogs
            if topic in existing
            for partition in reader.partitions_for_topic(topic) or ()
        ]
        return bool(partitions) and any((await reader.end_offsets(partitions)).values())
    finally:
        await reader.stop()


class FaustSteering:
    """The steering part: `executor` and `status` serve the link to the agent, `watcher` serves the transport."""

    def __init__(
        self,
        app: Any,
        shared: PluginState,
        *,
        connection: Connection,
        named_topics: NamedTopics,
        unfit_parts: Callable[[], Iterable[str]],
        settings: SteeringSettings,
    ) -> None:
        self._app = app
        self._shared = shared
        ownership, bulk = Ownership(app, shared.app), BulkRestore(connection)
        reader = ChangelogReader(connection, bulk, on_shorter=lambda: self._work.start_from_thread(self._settle))
        self.standbys = Standbys(app, ownership, reader, shared.troubles.tell)
        self._handover = KeyGroupHandover(app, ownership, self.standbys, settings)
        self._work, pending = BackgroundWork(), PendingHandovers()
        self._copies = DiskCopies(app, shared, ownership, self._work.start)
        self._reconciler = StandbyReconciler(
            shared,
            ownership,
            self.standbys,
            self._handover,
            prepared=pending.key_groups,
            ready=self._may_keep_warm,
            changed=self._copies.changed,
        )
        channel = Channel(shared, connection, on_placement=self._on_placement, on_handover=self._on_handover)
        self._side = SideServices(channel, reader)
        parts = SteeringParts(
            app=app,
            shared=shared,
            ownership=ownership,
            standbys=self.standbys,
            handover=self._handover,
            reconciler=self._reconciler,
            work=self._work,
            pending=pending,
            side=self._side,
            bulk=bulk,
            settings=settings,
        )
        self._receiver = HandoverReceiver(parts)
        self.executor = FaustCommandExecutor(parts)
        self.watcher = GroupWatcher(
            parts,
            named_topics=named_topics,
            unfit_parts=unfit_parts,
            is_empty=functools.partial(is_empty, connection, str(app.conf.id)),
        )
        self.status = FaustWorkerStatus(parts)

    async def close(self) -> None:
        """Stop everything that runs beside the app."""
        self.watcher.keep_commits()
        self._copies.close()
        await self._side.close()

    async def _may_keep_warm(self) -> bool:
        """Wait until the worker is stable; False if that takes too long.

        At the end of a rebalance the watcher starts another reconciliation.
        """
        return self._shared.refusal is None and await wait_until(
            self._app, lambda: self._handover.is_stable, SETTLE_LIMIT_S
        )

    async def _settle(self) -> None:
        self._receiver.confirm()
        await self._reconciler.settle()

    # ---- callbacks of the channel, in its thread

    def _on_placement(self) -> None:
        if self._side.placement_loaded():
            self._work.start_from_thread(self._settle)

    def _on_handover(self, record: HandoverRecord, written_at: float) -> None:
        if record.app == self._shared.app:
            self._work.start_from_thread(lambda: self._receiver.receive(record, written_at))
