"""Parts of one steered worker, shared by command executor, hand-over receiver and group watcher."""

from dataclasses import dataclass
from typing import Any

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import Handover
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.steering.background_work import BackgroundWork
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_agent.engines.faust.steering.side_services import SideServices
from trimtab_agent.engines.faust.steering.standby_reconciler import StandbyReconciler
from trimtab_agent.engines.faust.tables.standbys import Standbys


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that carry out steps.  None of them decides which steps to take."""

    app: Any
    shared: PluginState
    ownership: Ownership
    standbys: Standbys
    handover: Handover
    reconciler: StandbyReconciler
    work: BackgroundWork
    pending: PendingHandovers
    side: SideServices
    settings: SteeringSettings
