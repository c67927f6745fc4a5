"""The decoders of all that is read from files: configurations, keys, instances, the sandbox's record."""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trimtab_controller.stream.configuration
from benchmarks.dyndl.generate import encode_scheduling
from tests.fuzz.fuzzed.decoder import Decoder, Form, joined, parted
from tests.models import documents
from trimtab_agent.configuration import load_configuration
from trimtab_agent.engines.faust.credentials import BadKafkaFile, broker_options
from trimtab_controller.configuration import load
from trimtab_models.instances.reading import BadInstance, parsed_instance
from trimtab_models.instances.scheduling import SchedulingInstance
from trimtab_models.instances.sizing import SizingInstance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.instances.topology import Topology
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.codec import document as written
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.hosts import HostSigner, Signed, digest_of
from trimtab_protocol.signing.keys import BadKey, SigningKey, TrustedKeys, read_trust, write_trust
from trimtab_protocol.signing.known_hosts import KnownHosts
from trimtab_sandbox.state import StateError, load_state

# Files are read from memory, where there is such a place: a million of them are written.
FOLDER = Path(tempfile.mkdtemp(prefix="trimtab-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
PASSWORD = FOLDER / "password"
PASSWORD.touch(mode=0o600)
PASSWORD.write_text("hush\n")

KAFKA = f"""[kafka]
bootstrap_servers = "127.0.0.1:9092"
sasl = {{ mechanism = "SCRAM-SHA-512", username = "agent", password_file = "{PASSWORD}" }}
client = {{ "linger.ms" = 5 }}
"""
AGENT = f"""[agent]
cluster = "c"
host = "h0"
state_dir = "/tmp/a"
socket = "/tmp/a.sock"
interval_s = 1
{KAFKA}
[host]
cores = 2
[workers.w0]
capacity = 0.25
command = ["python", "-m", "app"]
environment = {{ A = "1" }}
data_dir = "d"
[guard]
min_free_disk_bytes = 1
[metrics]
listen = "[::1]:9101"
[trust]
file = "keys"
"""
CONTROLLER = f"""[controller]
cluster = "c"
lease_s = 6
{KAFKA}
[stream]
checkpoint_dir = "/tmp/c"
window_s = 10
expected_hosts = ["h0", "h1"]
spark = {{ "spark.master" = "local[2]" }}
[balance]
max_migrations = 20
load_distance = 6.5
[execution]
handover_timeout_s = 90.0
prepare_timeout_s = 30.0
[metrics]
listen = "127.0.0.1:9100"
[signing]
key_file = "k"
trust_file = "t"
"""
STATE = {
    "version": 1, "cluster": "c", "mark": "m", "bootstrap_servers": "127.0.0.1:9", "sockets": "/tmp/trimtab-x",
    "processes": {"broker": {"pid": 7, "log": "/tmp/l"}}, "ports": {"broker": [9, 10]},
}  # fmt: skip
KEY = SigningKey.generate()
TRUSTED = TrustedKeys((KEY.public,))
KNOWN = KnownHosts("c")
KNOWN.take(HostKeys(cluster="c", host=HostId("h0"), keys=(KEY.public.raw,), at=1.0, by="ops"))
SIGNED = Envelope(topic="trimtab.c.commands", key=b"h0", value=b'{"v":1}')
SIGNER = HostSigner(KEY, HostId("h0"))
FIRST, SECOND = (SIGNER.sign(SIGNED.topic, value)[1] for value in (b"1", b"2"))


def file_of(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """`read` of a file that has the bytes."""
    path = FOLDER / name

    def decode(data: bytes) -> Any:
        path.write_bytes(data)
        return read(path)

    return decode


def read_record(data: bytes) -> Any:
    """The sandbox's record in a folder."""
    (FOLDER / "state.json").write_bytes(data)
    return load_state(FOLDER)


def write_record(state: Any) -> bytes:
    """The same file."""
    state.save(FOLDER)
    return (FOLDER / "state.json").read_bytes()


def read_trusted(data: bytes) -> TrustedKeys:
    """The trust file; every key in it must be able to say no."""
    trusted = read_trust(data.decode())
    for key in trusted.keys:
        key.signed(bytes(64), b"")
    return trusted


def check_signed(data: bytes) -> None:
    """Topic, key, value and two signature headers."""
    topic, key, value, *signatures = parted(data, 5)
    present = tuple(signature for signature in signatures if signature)
    TRUSTED.check(Envelope(topic=topic.decode("latin-1"), key=key, value=value, signatures=present))


def check_host_signed(data: bytes) -> None:
    """Key, digest and two signature headers of a host's record, alone and among many."""
    key, digest, *signatures = parted(data, 4)
    record = Signed(key=key, digest=digest, signatures=tuple(signature for signature in signatures if signature))
    fault = KNOWN.fault(SIGNED.topic, record)
    assert KNOWN.faults(SIGNED.topic, [record]) == [fault]
    if fault is not None:
        raise BadMessage(fault, "headers", key, "a signature of this host")


def compact(document: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(document, separators=(",", ":")).encode()


def instance(name: str, document: object, kind: type[Any], write: Any = None) -> Decoder:
    """A reader of instance files."""
    parse = partial(parsed_instance, kind=kind)
    encode = (lambda value: compact(write(value))) if write else None
    return Decoder(name=name, samples=(compact(document),), decode=parse, refusals=(BadInstance,), encode=encode)


def toml(name: str, text: str, read: Callable[[Path], Any], refusal: type[Exception]) -> Decoder:
    """A reader of a configuration."""
    samples = (text.encode(),)
    return Decoder(name=name, samples=samples, decode=file_of(name, read), form=Form.TOML, refusals=(refusal,))


DECODERS = (
    toml("agent.toml", AGENT, load_configuration, BadConfiguration),
    toml("controller.toml", CONTROLLER, load, BadConfiguration),
    toml("stream's part of it", CONTROLLER, trimtab_controller.stream.configuration.load, BadConfiguration),
    toml("kafka.toml of an app", KAFKA, broker_options, BadKafkaFile),
    Decoder(
        name="trust file", samples=(write_trust([KEY.public]).encode(),), decode=read_trusted, form=Form.OTHER,
        refusals=(BadKey, UnicodeDecodeError), encode=lambda trusted: write_trust(trusted.keys).encode(),
    ),
    Decoder(name="private key", samples=(KEY.pem(),), decode=SigningKey.from_pem, form=Form.OTHER, refusals=(BadKey,)),
    Decoder(
        name="signature", samples=(joined(SIGNED.topic.encode(), SIGNED.key, SIGNED.value, KEY.sign(SIGNED)[1]),),
        decode=check_signed, form=Form.OTHER,
    ),
    Decoder(
        name="host signature", samples=(joined(b"h0", digest_of(b"2"), SECOND),), decode=check_host_signed,
        form=Form.OTHER,
    ),
    Decoder(
        name="sandbox's record", samples=(compact(STATE),), decode=read_record, refusals=(StateError,),
        encode=write_record,
    ),
    instance("instance, snapshot", documents.SNAPSHOT, BalanceInstance, written),
    instance("instance, scheduling", documents.SCHEDULING, SchedulingInstance, encode_scheduling),
    instance("instance, sizing", documents.SIZING, SizingInstance),
    instance("instance, topology", documents.TOPOLOGY, Topology),
)  # fmt: skip
