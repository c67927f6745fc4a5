"""Records as they come from Kafka."""

from tests.controller.decider import decider_situations as situations
from tests.kafka_record import Headers, Record
from trimtab_controller.kafka.publisher import Record as Published
from trimtab_controller.kafka.publisher import headers_of
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, HostId, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

TOPICS = Topics("c")
NOW = 1000.0
APP = AppId("app")
NOWHERE = ("--bootstrap", "127.0.0.1:1", "--cluster", "c")


def an_ack(**changes: object) -> Ack:
    values = {
        "cluster": "c",
        "command_id": CommandId("0" * 32),
        "epoch": Epoch(1, 2),
        "kind": CommandKind.PREPARE,
        "host": HostId("h1"),
        "worker": WorkerId("w1"),
        "phase": Phase.ACCEPTED,
        "at": NOW,
        **changes,
    }
    return Ack(**values)  # type: ignore[arg-type]


def a_window(end_s: float, **changes: object) -> Snapshot:
    """A window without workers."""
    one_host = {"hosts_seen": 1, "hosts_expected": 1}
    return situations.a_window(end_s, (), (), **{"start_ms": 0, "published_ms": 0, **one_host, **changes})


KEY_PAIR, OLD_KEY, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys((OLD_KEY.public, KEY_PAIR.public))
PLACED = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={OperatorId("o"): ((WorkerId("w0"),),)})


def placed(by: SigningKey | None, placement: Placement = PLACED) -> Record:
    """A placement as it is found on the topic."""
    wanted = Published(topic=TOPICS.placement, key=APP.encode(), value=encoded(placement), signed=True)
    return Record(wanted.topic, wanted.value, wanted.key, headers_of(wanted, by))


class Garbled(Record):
    """A header's name is not UTF-8: this is what confluent-kafka does then."""

    def headers(self) -> Headers | None:
        raise SystemError("<method 'headers'> returned a result with an exception set")
