import json
from dataclasses import replace

import pytest

from tests.fuzz.fuzzed.samples import REPORT, STATISTICS
from trimtab_protocol.messages import report
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.reason_text import REASON_PATTERN


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("the parts do not add up: 0.3 + 0.4 > 0.5 s", "the parts do not add up: 0.3 + 0.4 > 0.5 s"),
        ('a "b" [c] {d} `e` \\ ? \u00e9\n', "a 'b' (c) (d) 'e' _ _ __"),
        ("7 s", "reason 7 s"),
        ("", "reason"),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_reason_is_kept_as_a_report_can_hold_it(text, fitting):
    kept = replace(STATISTICS, unknown=text).unknown
    assert kept == fitting
    assert REASON_PATTERN.fullmatch(kept)
    assert replace(STATISTICS, unknown=kept).unknown == kept


@pytest.mark.parametrize(
    ("change", "fault", "path"),
    [
        ({"os": ["sums"], "oc": [1, 2]}, Fault.RANGE, "w[0].oc"),
        ({"os": ["sums", "sums"], "oc": [1, 2]}, Fault.RANGE, "w[0].os"),
        ({"os": ["a/b"], "oc": [1]}, Fault.RANGE, "w[0].os[0]"),
        ({"os": ["sums"], "oc": [0]}, Fault.RANGE, "w[0].oc[0]"),
        ({"os": ["sums"]}, Fault.MISSING, "w[0].oc[0]"),
        ({"oc": [1]}, Fault.MISSING, "w[0].os"),
        ({"sby": -1}, Fault.RANGE, "w[0].sby"),
        ({"unk": "7 s"}, Fault.RANGE, "w[0].unk"),
        ({"unk": 7}, Fault.TYPE, "w[0].unk"),
        ({"why": "x" * 201}, Fault.RANGE, "w[0].why"),
        ({"why": "a\nb"}, Fault.RANGE, "w[0].why"),
        ({"why": True}, Fault.TYPE, "w[0].why"),
    ],
)
def test_what_a_worker_declares_is_checked(change, fault, path):
    document = json.loads(report.encode_report(REPORT))
    worker = document["w"][0]
    document["w"][0] = {name: worker[name] for name in worker if name not in ("os", "oc")} | change
    with pytest.raises(BadMessage) as caught:
        report.decode_report(json.dumps(document).encode())
    assert (caught.value.fault, caught.value.path) == (fault, path)


@pytest.mark.parametrize("capacity", [0, 0.0009, 10_000.1])
def test_a_worker_has_a_share_of_a_core_that_loads_can_be_divided_by(capacity):
    document = json.loads(report.encode_report(REPORT))
    document["w"][0]["cap"] = capacity
    with pytest.raises(BadMessage) as caught:
        report.decode_report(json.dumps(document).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.RANGE, "w[0].cap")
