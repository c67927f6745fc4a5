import json

import pytest

from tests.fuzz.fuzzed.samples import PLACEMENT
from trimtab_protocol.messages import placement
from trimtab_protocol.messages.codec import document
from trimtab_protocol.messages.decode import BadMessage, Fault


def test_a_placement_names_each_worker_once_per_key_group():
    message = document(PLACEMENT) | {"owners": {"sums": [["w0", "w0"]]}}
    with pytest.raises(BadMessage, match=r"owners.sums\[0\]"):
        placement.decode_placement(json.dumps(message).encode())


@pytest.mark.parametrize(
    ("owners", "path"),
    [
        ({"sums": [["w0"]] * 100_001}, "owners.sums"),
        ({"sums": [[f"w{number}" for number in range(10)]]}, "owners.sums[0]"),
    ],
    ids=["key groups", "standbys"],
)
def test_a_placement_has_its_limits(owners, path):
    with pytest.raises(BadMessage) as caught:
        placement.decode_placement(json.dumps(document(PLACEMENT) | {"owners": owners}).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.TYPE, path)


def test_a_placement_is_silent_about_what_it_does_not_know():
    assert [PLACEMENT.of("sums", 1), PLACEMENT.of("sums", 2), PLACEMENT.of("sums", 3), PLACEMENT.of("else", 0)] == [
        ("w1", "w0"),
        (),
        (),
        (),
    ]


@pytest.mark.parametrize("epoch", [[-1, 0], [1, -1], [1], [1, 2, 3], [1, 2**53 + 1], [1, 2.0], "1.2"])
def test_an_epoch_is_two_counts(epoch):
    with pytest.raises(BadMessage, match=r"^epoch(\[[01]\])?: "):
        placement.decode_placement(json.dumps(document(PLACEMENT) | {"epoch": epoch}).encode())
