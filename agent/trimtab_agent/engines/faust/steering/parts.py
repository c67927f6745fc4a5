"""What command executor, hand-over receiver and group watcher of one steered worker share: its parts, and a wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import KeyGroupHandover
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.steering.background_work import BackgroundWork
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_agent.engines.faust.steering.side_services import SideServices
from trimtab_agent.engines.faust.steering.standby_reconciler import StandbyReconciler
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.waiting import until

POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringParts:
    """The parts that carry out steps.  None of them decides which steps to take."""

    app: Any
    shared: PluginState
    ownership: Ownership
    standbys: Standbys
    handover: KeyGroupHandover
    reconciler: StandbyReconciler
    work: BackgroundWork
    pending: PendingHandovers
    side: SideServices
    bulk: BulkRestore
    settings: SteeringSettings


async def wait_until(app: Any, done: Callable[[], bool], limit_s: float) -> bool:
    """Wait until `done()`; returns False after `limit_s`, or when the app is about to stop."""
    return await until(done, time.monotonic() + limit_s, lambda: app.should_stop, poll_s=POLL_S)
