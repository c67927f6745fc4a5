"""Who speaks for each host, as the API shows it: enrolled, revoked, refused, and doubted by the controller."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import CLUSTER, NOW, TOPICS, Fleet, Record, source_of, status_record
from tests.console.setup import get as answer
from trimtab_console.server import application
from trimtab_console.watch import Watch
from trimtab_protocol.messages.host_keys import HostKeys, encode_host_keys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.status import SignatureStatus, Status
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import PublicKey, SigningKey, TrustedKeys

FLEET = Fleet(workers=4, key_groups=64)
H0, H1, H2, H3 = (FLEET.host(at) for at in range(4))
CONTROLLER, OTHER = SigningKey.generate(), SigningKey.generate()
FIRST, SECOND = (SigningKey.generate().public for _ in range(2))
ENFORCED = SignatureStatus(
    checking="enforce", enrolled=2, unsigned={"reports.unsigned": 3}, doubted={H3: "unknown_key"}
)


def record(host: HostId, *keys: PublicKey, at: float = NOW - 60, by: SigningKey = CONTROLLER) -> Record:
    said = HostKeys(cluster=CLUSTER, host=host, keys=tuple(key.raw for key in keys), at=at, by="ops")
    envelope = Envelope(topic=TOPICS.keys, key=host.encode(), value=encode_host_keys(said), signatures=())
    return Record(TOPICS.keys, envelope.key, envelope.value, [by.sign(envelope)])


def watching(*records: Record, status: Status | None = None, trusts: bool = True) -> Watch:
    trusted = TrustedKeys((CONTROLLER.public,)) if trusts else None
    watch = Watch(TOPICS, lambda: NOW, trusted=trusted)
    watch.take(status_record(replace(status or FLEET.status(), signatures=ENFORCED)))
    for each in records:
        watch.take(each)
    return watch


def get(watch: Watch, path: str) -> Any:
    return answer(TestClient(application(source_of(watch)), base_url="http://localhost:8750"), path)


def test_hosts_with_keys_without_and_those_that_are_doubted() -> None:
    watch = watching(record(H0, FIRST), record(H1, SECOND, at=NOW - 90), record(H1))
    rows = get(watch, "host-keys")["items"]
    assert [(row["host"], row["keys"], row["doubted"]) for row in rows] == [
        (H3, [], "unknown_key"), (H1, [], None), (H2, [], None), (H0, [FIRST.id], None),
    ]  # fmt: skip
    assert (rows[1]["since"], rows[2]["since"]) == (NOW - 60, None), "one is revoked, one was never enrolled"
    assert (rows[3]["fingerprints"], rows[3]["since"], rows[3]["by"]) == ([FIRST.fingerprint], NOW - 60, "ops")
    assert get(watch, "signatures") == {
        "checking": "enforce", "enrolled": 1, "hosts": 4, "verified": True, "unsigned": {"reports.unsigned": 3},
    }  # fmt: skip
    assert [row["host"] for row in get(watch, f"host-keys?name={H0}")["items"]] == [H0]


def test_keys_that_no_trusted_key_has_signed_do_not_count_and_are_told() -> None:
    forged = record(H0, SECOND, by=OTHER, at=NOW)
    rows = get(watching(record(H0, FIRST), forged), f"host-keys?name={H0}")["items"]
    assert (rows[0]["host"], rows[0]["keys"]) == (H0, [FIRST.id])
    assert "expected a signature of a trusted key" in rows[0]["refused"]
    later = record(H0, SECOND, FIRST, at=NOW)
    (row,) = get(watching(forged, later), f"host-keys?name={H0}")["items"]
    assert (row["keys"], row["refused"]) == ([SECOND.id, FIRST.id], None)


def test_without_a_trust_file_it_says_that_nothing_was_checked() -> None:
    watch = watching(record(H0, FIRST, by=OTHER), trusts=False)
    assert get(watch, f"host-keys?name={H0}")["items"][0]["keys"] == [FIRST.id]
    assert get(watch, "signatures")["verified"] is False


def test_an_older_record_that_comes_again_changes_nothing() -> None:
    watch = watching(record(H0, at=NOW), record(H0, FIRST, at=NOW - 60))
    (row,) = get(watch, f"host-keys?name={H0}")["items"]
    assert (row["keys"], row["since"]) == ([], NOW)


@pytest.mark.parametrize("again", [True, False])
def test_topics_that_were_made_anew_are_read_from_nothing(again: bool) -> None:
    watch = watching(record(H0, FIRST))
    if again:
        watch.restart()
        watch.take(status_record(FLEET.status()))
    assert get(watch, "signatures")["enrolled"] == (0 if again else 1)
