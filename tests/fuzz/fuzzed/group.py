"""What the members of an app's consumer group tell each other, through the broker: one that is broken harms nobody."""

import functools
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import faust
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from tests.fuzz.fuzzed.decoder import Decoder, Form, Refused
from tests.fuzz.fuzzed.files import KEY, TRUSTED
from tests.fuzz.fuzzed.ports import counted
from tests.fuzz.fuzzed.samples import APP, CLUSTER, SUMS, W0, W1
from trimtab_agent.engines.faust.group.assignor import PlacementAssignor
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import Epoch, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope

PARTITIONS = 3
TOPICS = frozenset({"in", "a-sums-changelog"})
LAYOUT = Layout(named={SUMS: TOPICS}, sources=frozenset({"in"}), changelogs=frozenset({"a-sums-changelog"}))
GROUP = SimpleNamespace(partitions_for_topic=lambda topic: set(range(PARTITIONS)) if topic in TOPICS else None)
HONEST, BROKEN = "m0", "m1"


class Side:
    """A worker with its app, as the group sees it."""

    def __init__(self, worker: WorkerId) -> None:
        app = faust.App("a", canonical_url=f"http://{worker}:6066", table_standby_replicas=0, web_enabled=False)
        self.board = PluginState(cluster=CLUSTER, app=APP, worker=worker, trust=TRUSTED)  # type: ignore[arg-type]
        app.conf.PartitionAssignor = functools.partial(PlacementAssignor, self.board)
        app.Table("sums", partitions=PARTITIONS)
        self.assignor: Any = app.assignor

    def forget(self) -> None:
        """As it was before it heard of anything."""
        self.board.newest, self.board.refused, self.board.layout = None, Counter(), LAYOUT

    def says(self) -> Any:
        """What it joins with."""
        return self.assignor.metadata(set(TOPICS))


OURS, THEIRS = Side(W0), Side(W1)


def _placed() -> bytes:
    """What a member says that has seen a placement and owns what that gives it."""
    placement = Placement(cluster=CLUSTER, app=APP, epoch=Epoch(2, 9), owners={SUMS: ((W0,), (W1, W0), (W1,))})
    value = encoded(placement)
    signature = KEY.sign(Envelope(topic=THEIRS.board.topics.placement, key=APP.encode(), value=value))[1]
    THEIRS.board.take(value, (signature,))
    THEIRS.assignor._assignment.actives.update({topic: [1, 2] for topic in TOPICS})
    return bytes(THEIRS.says().user_data)


TOLD = _placed()


def lead(data: bytes) -> None:
    """The leader hears one member say this: every partition has one owner, and the other member its part."""
    OURS.forget()
    members = {HONEST: OURS.says(), BROKEN: ConsumerProtocolMemberMetadata(0, sorted(TOPICS), data)}

    def assign() -> None:
        assigned = OURS.assignor._perform_assignment(GROUP, members)
        assert assigned.keys() == members.keys()
        for topic in TOPICS:
            owned = [partition for each in assigned.values() for partition in dict(each.assignment).get(topic, ())]
            assert sorted(owned) == list(range(PARTITIONS)), f"{topic}: {owned}"
        ours = ConsumerProtocolMemberAssignment.decode(assigned[HONEST].encode())
        before = OURS.board.refused.total()
        OURS.assignor.on_assignment(ours)
        assert OURS.board.refused.total() == before, "a true member refuses what it is given"
        OURS.assignor._assignment.actives.clear()

    counted(OURS.board.refused, assign, parts=2)  # layout and copies are read apart


def follow(data: bytes) -> None:
    """The leader sends a member this with its partitions: it has them whatever it is, to work on or as a standby."""
    OURS.forget()
    packed = data if data[:1] == ZIPPED else zlib.compress(data, 1)
    given = ConsumerProtocolMemberAssignment(0, GIVEN, packed)
    counted(OURS.board.refused, lambda: OURS.assignor.on_assignment(given))
    held = OURS.assignor._assignment.kafka_protocol_assignment(OURS.assignor._table_manager)
    assert sorted(held) == sorted(GIVEN)


def _assigned() -> Any:
    OURS.forget()
    members = {HONEST: OURS.says(), BROKEN: ConsumerProtocolMemberMetadata(0, sorted(TOPICS), TOLD)}
    return OURS.assignor._perform_assignment(GROUP, members)[HONEST]


ZIPPED = zlib.compress(b"")[:1]
ASSIGNED = _assigned()
GIVEN = ASSIGNED.assignment

DECODERS = (
    Decoder(name="plug-in: group member", refusals=(Refused,), decode=lead, samples=(TOLD,)),
    Decoder(
        name="plug-in: assignment", refusals=(Refused,), decode=follow,
        samples=(zlib.decompress(ASSIGNED.user_data),),
    ),
    Decoder(
        name="plug-in: assignment, packed", refusals=(Refused,), decode=follow, form=Form.OTHER,
        samples=(ASSIGNED.user_data,),
    ),
)  # fmt: skip
