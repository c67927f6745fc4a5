import json

import pytest

from tests.fuzz.fuzzed.samples import SNAPSHOT
from trimtab_protocol.messages import snapshot
from trimtab_protocol.messages.decode import BadMessage, Fault

COLUMNS = {"partition", "worker", "covered_s", "tuples_in_s", "backlog"}
"""Of the snapshot's one key group, those that are known."""


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("hosts", lambda rows: rows * 2),
        ("nodes", lambda rows: rows * 2),
        ("key_groups", lambda blocks: blocks * 2),
        (
            "key_groups[0].partition",
            lambda blocks: [blocks[0] | {k: v * 2 for k, v in blocks[0].items() if k in COLUMNS}],
        ),
    ],
)
def test_nothing_is_in_a_snapshot_twice(field, change):
    document = json.loads(snapshot.encode_snapshot(SNAPSHOT))
    name = field.partition("[")[0]
    with pytest.raises(BadMessage) as caught:
        snapshot.decode_snapshot(json.dumps(document | {name: change(document[name])}).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.RANGE, field)


def test_coverage_is_hosts_seen_of_expected():
    assert SNAPSHOT.coverage == 0.5
    nobody = json.loads(snapshot.encode_snapshot(SNAPSHOT)) | {"hosts_seen": 0, "hosts_expected": 0}
    assert snapshot.decode_snapshot(json.dumps(nobody).encode()).coverage == 0.0
