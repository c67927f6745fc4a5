"""Latencies that sinks note can be read while they go on."""

import time
from pathlib import Path

import pytest

from jobs.latencies import FLUSH_S, LatencyLog, read_latencies


def test_what_a_sink_has_noted_is_read_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "latencies", 1000.0
    monkeypatch.setenv("JOBS_LATENCIES", str(path))
    monkeypatch.setattr(time, "time", lambda: now)
    sink = LatencyLog()
    for at, milliseconds in ((1000.0, 7), (1001.0, 12), (1002.0, 5), (1003.0 + 2 * FLUSH_S, 9)):
        now = at
        sink.note(at - milliseconds / 1000)
    assert read_latencies([path, tmp_path / "none"], 1000.5, 1002.5) == [5.0, 12.0]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "latencies"
    path.write_text("1000.000 12.5\n1000.100 13")
    assert read_latencies([path], 0.0, 2000.0) == [12.5]
