"""What counts as health: windows for a leader, touch with Kafka for a standby."""

from dataclasses import dataclass, replace

import pytest

from trimtab_controller.configuration import decode
from trimtab_controller.leadership.machine import CandidateRole
from trimtab_controller.loop.health import STUCK_S, Facts, Health, judge
from trimtab_process.health import LIVE, READY

ENDED = "Spark's process has ended 3 times in a row, at last with exit code 1, and will be started again"
KNOWN = Facts(role=CandidateRole.LEADING, window_age_s=4.0, heard_s=1.0, stream=None)
CASES = [
    (KNOWN, True, "leads; the last window ended 4 s ago"),
    (replace(KNOWN, role=None), True, "dry run; the last window ended 4 s ago"),
    # The process may have been started again in time: what counts is that windows come.
    (replace(KNOWN, stream=ENDED), True, "leads; the last window ended 4 s ago"),
    (
        replace(KNOWN, window_age_s=61.0, stream=ENDED),
        False,
        f"leads, but the last window ended 61 s ago, expected one in 35 s: {ENDED}",
    ),
    (
        replace(KNOWN, window_age_s=None),
        False,
        "leads, but no window has come yet, expected one in 35 s: does the stream run, and do agents report?",
    ),
    (replace(KNOWN, role=CandidateRole.WAITING, window_age_s=None), True, "stands by; Kafka answered 1 s ago"),
    (replace(KNOWN, role=CandidateRole.WAITING, heard_s=None), False, "stands by, but Kafka has not answered yet"),
    (
        replace(KNOWN, role=CandidateRole.WAITING, heard_s=30.0),
        False,
        "stands by, but Kafka answered 30 s ago, expected 11 s at most",
    ),
    (
        replace(KNOWN, role=CandidateRole.WAITING, stream=ENDED),
        False,
        f"stands by, but could publish no windows: {ENDED}",
    ),
    (
        replace(KNOWN, role=CandidateRole.SUSPENDED),
        False,
        "the lease has expired: no commands until it is known who leads",
    ),
    (replace(KNOWN, role=CandidateRole.AWAY), False, "waits for Kafka, to join the group of controllers"),
]


@pytest.mark.parametrize(("facts", "well", "text"), CASES, ids=[text for _, _, text in CASES])
def test_a_verdict_and_why(facts: Facts, well: bool, text: str) -> None:
    found = judge(facts, window_limit_s=35.0, contact_limit_s=11.0)
    assert (found.well, found.text) == (well, text)


def test_every_role_has_a_verdict() -> None:
    assert all(
        judge(replace(KNOWN, role=role), window_limit_s=35.0, contact_limit_s=11.0).text for role in CandidateRole
    )


@dataclass
class Playing:
    role: CandidateRole = CandidateRole.WAITING
    heard_at: float | None = None
    trouble: str | None = None


def test_a_controller_from_its_start_to_a_dead_spark() -> None:
    document = {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
        "stream": {"checkpoint_dir": "/x", "window_s": 10.0, "watermark_s": 5.0},
    }
    now, candidate, stream = [1000.0], Playing(role=CandidateRole.AWAY), Playing()
    health = Health(decode(document), stream, lambda: now[0])
    assert health.ready().text == "dry run, but no window has come yet, expected one in 35 s: " + (
        "does the stream run, and do agents report?"
    )
    health.follow(candidate)
    assert not health.ready().well
    candidate.role, candidate.heard_at = CandidateRole.WAITING, 999.0
    assert health.ready().well
    candidate.role = CandidateRole.LEADING
    assert not health.ready().well
    health.see_window(998.0)
    assert health.ready().text == "leads; the last window ended 2 s ago"
    now[0], stream.trouble = 1034.0, ENDED
    assert not health.ready().well
    assert ENDED in health.ready().text
    health.see_window(None)  # another term
    assert "no window has come yet" in health.ready().text


def test_a_loop_that_stands_still_is_not_alive() -> None:
    document = {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
        "stream": {"checkpoint_dir": "/x"},
    }
    now = [1000.0]
    health = Health(decode(document), None, lambda: now[0])
    assert set(health.checks()) == {LIVE, READY}
    now[0] += STUCK_S
    assert not health.live().well
    health.turned()
    assert health.live().text == "the loop turned 0 s ago"
