"""Changes of the keys of hosts, as records to write."""

from collections.abc import Mapping

import pytest

from trimtab_controller.kafka.host_keys import approving, revoking, sign_again
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, SigningKey

A, B = HostId("a"), HostId("b")
FIRST, SECOND, THIRD = (SigningKey.generate().public for _ in range(3))


def keys_of(host: HostId, *keys: PublicKey, at: float = 10.0) -> HostKeys:
    return HostKeys(cluster="c", host=host, keys=tuple(key.raw for key in keys), at=at, by="ops")


def known(*records: HostKeys) -> Mapping[HostId, HostKeys]:
    return {record.host: record for record in records}


def test_a_new_key_counts_beside_the_one_before() -> None:
    approve = approving("c", A, SECOND, "ops")

    assert approve({}, 20.0) == [keys_of(A, SECOND, at=20.0)]
    assert approve(known(keys_of(A, FIRST)), 20.0) == [keys_of(A, SECOND, FIRST, at=20.0)]
    assert approve(known(keys_of(A, FIRST, THIRD)), 20.0) == [keys_of(A, SECOND, FIRST, at=20.0)]
    assert approve(known(keys_of(A, SECOND)), 20.0) == [keys_of(A, SECOND, at=20.0)]


def test_a_key_belongs_to_one_host() -> None:
    with pytest.raises(BadKey, match="approved for host b, expected a key of a alone"):
        approving("c", A, FIRST, "ops")(known(keys_of(B, FIRST)), 20.0)


def test_revoking_takes_one_key_or_all_and_forgets_nothing_before() -> None:
    both = known(keys_of(A, SECOND, FIRST), keys_of(B, THIRD))

    assert revoking("c", A, FIRST.id, "ops")(both, 20.0) == [keys_of(A, SECOND, at=20.0)]
    assert revoking("c", A, None, "ops")(both, 20.0) == [keys_of(A, at=20.0)]
    assert revoking("c", A, None, "ops")({}, 20.0) == [keys_of(A, at=20.0)]
    assert approving("c", A, THIRD, "ops")(known(keys_of(A)), 20.0) == [keys_of(A, THIRD, at=20.0)]
    with pytest.raises(BadKey, match="expected 0000 among them"):
        revoking("c", A, KeyId("0000"), "ops")(both, 20.0)


def test_a_change_is_later_than_the_one_before_also_by_a_slow_clock() -> None:
    [record] = revoking("c", A, None, "ops")(known(keys_of(A, FIRST, at=100.0)), 20.0)

    assert record.at > 100.0


def test_signing_again_changes_nothing() -> None:
    records = known(keys_of(B, THIRD), keys_of(A, FIRST))

    assert sign_again(records, 20.0) == [keys_of(A, FIRST), keys_of(B, THIRD)]
