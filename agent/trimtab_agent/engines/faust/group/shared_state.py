"""State that the plug-in's threads share: the newest placement and the app's layout.

The channel's thread writes placements and the event loop writes the layout.  The consumer's thread (assignor) and the
event loop read.  Every field is a reference to a frozen value, so reading needs no lock.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable

from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.routes import Routes
from trimtab_agent.engines.faust.safety.troubles import Troubles
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, AppId, Epoch, KeyGroup, Topics, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import PlacementRecord, decode_record
from trimtab_protocol.signing.envelope import Envelope

log = logging.getLogger(__name__)

Signatures = tuple[bytes, ...]


class PluginState:
    """Newest placement of one app, as seen by one worker.

    `trust` None: signatures are not checked.
    """

    def __init__(self, *, cluster: str, app: AppId, worker: WorkerId, trust: TrustFile | None = None) -> None:
        self.cluster = cluster
        self.app = app
        self.worker = worker
        self.topics = Topics(cluster)
        self.newest: tuple[Placement, Signatures] | None = None
        """The placement with its signatures, so that other members can check what this worker passes on."""
        self.refused: Counter[Fault] = Counter()
        """Number of refused placements and hand-over records, by reason."""
        self.flaw: str | None = None
        """Why the newest placement on the topic is not followed: it cannot be put together.  None = it can."""
        self.breaches = 0
        """Number of times that a changelog would have overwritten state that this worker writes."""
        self.layout: Layout | None = None
        """None until the topics are known; stays None if they cannot be divided into operators."""
        self.faust_standbys = 0
        """Standby replicas that the app asks for; restored in Faust if the app turns out not to be steerable."""
        self.empty_at: float | None = None
        """When this worker saw, before its first join, that the app has no state (monotonic seconds); None = it has,
        or that is unknown."""
        self.applied: Epoch = NO_EPOCH
        """Epoch of the placement that the last rebalance applied; NO_EPOCH = none, or not for what members kept."""
        self.copies: tuple[Copy, ...] = ()
        """State on this worker's disk of key groups that it neither owned nor followed when it looked last."""
        self.routes: Routes | None = None
        """Whom Faust's router asks; None until Faust has made the assignor."""
        self.standstill = Standstill()
        """For how long this worker's inputs have stood still at rebalances."""
        self.refusal: str | None = None
        """Why this worker only reports for its whole life; None = it can be steered while `differs` is None too."""
        self.differs: str | None = None
        """How the members' versions of the app differ, or which of them have one name, according to the leader of this
        generation."""
        self.not_local: str | None = None
        """Why events of a topic that should be local go by the broker; None = nothing is known against it."""
        self.few_files: str | None = None
        """That the databases of all key groups would need more open files than are allowed; None = they do not."""
        self.troubles = Troubles()
        """What has gone wrong with inputs or state."""
        self._trust = trust
        self._writing = threading.Lock()

    def refuse(self, reason: str) -> None:
        """Only report from now on."""
        log.warning("this worker is not steered: %s", reason)
        self.refusal = reason

    @property
    def reports_only(self) -> str | None:
        """Why this worker only reports now; None = it can be steered."""
        return self.refusal or self.differs

    @property
    def placement(self) -> Placement | None:
        """The newest placement; None before the first one."""
        return self.newest[0] if self.newest else None

    def is_placed(self, key_groups: Iterable[KeyGroup], owner: WorkerId) -> bool:
        """Whether the newest placement names this worker as the owner of all these key groups."""
        placement = self.placement
        return placement is not None and all(
            placement.of(each.operator, each.partition)[:1] == (owner,) for each in key_groups
        )

    def take(self, value: bytes, signatures: Signatures) -> bool:
        """Decode a placement in one record and keep it if it is the newest; returns whether it was.

        Raises BadMessage, and counts it.
        """
        found = self.read(self.app.encode(), value, signatures)
        return isinstance(found, Placement) and self.offer(found, signatures)

    def read(self, key: bytes, value: bytes, signatures: Signatures) -> PlacementRecord:
        """Decode a record of this app on the placements' topic.

        Raises BadMessage, and counts it, if no trusted key has signed it, it cannot be read, or it is another app's.
        """
        try:
            if self._trust is not None:
                self._trust.check(Envelope(topic=self.topics.placement, key=key, value=value, signatures=signatures))
            record = decode_record(key, value)
            if record.cluster != self.cluster:
                raise BadMessage(Fault.CLUSTER, "cluster", record.cluster, self.cluster)
            if record.app != self.app:
                raise BadMessage(Fault.RANGE, "app", record.app, self.app)
        except BadMessage as error:
            self.refused[error.fault] += 1
            raise
        return record

    def offer(self, placement: Placement, signatures: Signatures = ()) -> bool:
        """Keep a placement if it is of this app and the newest; returns whether it was."""
        with self._writing:
            newest = self.placement.epoch if self.placement else NO_EPOCH
            fits = (placement.cluster, placement.app) == (self.cluster, self.app)
            if not fits or placement.epoch <= newest:
                return False
            self.newest = placement, signatures
            return True


class Standstill:
    """For how long key groups have stood still since the consumer group stopped this worker's inputs.

    It counts from the revocation until inputs flow again, for each key group that the worker owns then.  A rebalance
    stops the inputs of every member, whoever has caused it: a worker that starts, stops, crashes or is lost.
    Hand-overs do not come here: they stop single key groups, and say themselves for how long.

    A key group that it has got from another worker counts as long as its own: all members are stopped at nearly the
    same time.  For how long a key group had no owner before, nobody here can say.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._total: tuple[float, int] | None = None
        self._known = True

    @property
    def total(self) -> tuple[float, int] | None:
        """Key-group seconds since the start, and how many key groups that were; None = unknown."""
        return self._total if self._known else None

    def begin(self, now: float) -> None:
        """Inputs are stopped.  Repetitions until they flow again change nothing."""
        self._total = self._total or (0.0, 0)
        if self._since is None:
            self._since = now

    def end(self, now: float, key_groups: int | None) -> None:
        """Inputs flow again, of so many key groups; None = it is not known of how many, now and from now on."""
        since, self._since = self._since, None
        if key_groups is None:
            self._known = False
        elif since is not None and self._total is not None:
            seconds, count = self._total
            self._total = seconds + key_groups * max(0.0, now - since), count + key_groups
