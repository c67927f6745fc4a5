"""Which hand-overs are released next: a restore takes long and disturbs little, a release is short and pauses.

Targets may restore many key groups at the same time.  Then several become warm at once, and each release makes its
source and its target commit.  So they wait for each other, warm, while their source goes on with the key groups.
"""

from collections import Counter
from collections.abc import Iterator

from trimtab_controller.execution.answers import answers
from trimtab_controller.execution.budget import BudgetGate
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase
from trimtab_protocol.messages.commands import Ack, Phase
from trimtab_protocol.messages.names import HostId

RELEASES_PER_HOST = 2
"""The most hand-overs from and to a host that are released at the same time."""


class Releases:
    """The hand-overs whose targets are warm, with their acks, in the order in which they became so.

    They are not in the journal: a new leader reads the acks again.
    """

    def __init__(self) -> None:
        self._warm: dict[str, Ack] = {}

    def hear(self, handover: Handover, ack: Ack) -> bool:
        """Whether this ack says that the target is warm.  It is kept until the hand-over is taken."""
        preparing = handover.phase is HandoverPhase.PREPARING and answers(ack, handover.prepare)
        if not preparing or ack.phase is not Phase.PREPARED:
            return False
        self._warm[handover.id] = ack
        return True

    def is_warm(self, handover: Handover) -> bool:
        """Whether the target of a hand-over that is being prepared has become warm."""
        ack = self._warm.get(handover.id)
        return ack is not None and handover.phase is HandoverPhase.PREPARING and answers(ack, handover.prepare)

    def take_due(self, execution: Execution, gate: BudgetGate | None = None) -> Iterator[tuple[Handover, Ack]]:
        """The hand-overs to release now; `gate` = the disruption budgets, None: there are none."""
        present = {handover.id: handover for row in execution.in_flight for handover in row.handovers}
        self._warm = {name: ack for name, ack in self._warm.items() if name in present and self.is_warm(present[name])}
        busy: Counter[HostId] = Counter()
        for handover in present.values():
            if handover.phase is HandoverPhase.RELEASING:
                busy.update(handover.hosts)
        for name, ack in list(self._warm.items()):
            handover = present[name]
            if gate is not None and not gate.may_release(handover):
                continue
            if all(busy[host] < RELEASES_PER_HOST for host in handover.hosts):
                if gate is not None:
                    gate.released(handover)
                busy.update(handover.hosts)
                del self._warm[name]
                yield handover, ack
