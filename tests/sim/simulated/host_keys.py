"""The files and the record by which hosts are trusted: whose commands they obey, and which keys speak for them."""

from pathlib import Path

from tests.sim.simulated.broker import Unsent
from tests.sim.simulated.machine import Machine
from trimtab_controller.kafka.publisher import Record, headers_of
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.host_keys import HostKeys


def trust_file(machine: Machine) -> Path:
    """Whose commands the host's agent and workers obey."""
    return machine.folder / "trusted.keys"


def key_file(machine: Machine) -> Path:
    """The key with which the host's agent signs."""
    return machine.folder / "host.pem"


def keys_record(topic: str, found: HostKeys, signer: Path) -> Unsent:
    """What the operator writes about the keys of a host, signed by the key in `signer`."""
    record = Record(topic=topic, key=found.host.encode(), value=encoded(found), signed=True)
    return Unsent(topic=topic, key=record.key, value=record.value, headers=headers_of(record, load_signing_key(signer)))
