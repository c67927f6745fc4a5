"""The stream's process: what keeps Spark from running is a line, not a traceback."""

import logging
import os
import sys
import threading
from pathlib import Path

import pytest

from trimtab_controller.jars.fetching import JarError
from trimtab_controller.stream import __main__ as stream
from trimtab_controller.stream import driver
from trimtab_controller.stream.outlet import Turns
from trimtab_controller.stream.signatures import Refused, Verdict
from trimtab_protocol.messages.decode import Fault


def test_jars_that_cannot_be_had_end_it_with_their_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(
        f'[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:9"\n'
        f'[stream]\ncheckpoint_dir = "{tmp_path}"\n'
    )

    def run(*_: object) -> None:
        raise JarError("no network")

    monkeypatch.setattr(driver, "run", run)
    monkeypatch.setattr(stream, "_stop_signals", threading.Event)
    monkeypatch.setattr(sys, "argv", ["stream", "--config", str(path)])
    assert stream.main() == 1
    assert [(row.levelno, row.getMessage()) for row in caplog.records] == [
        (logging.ERROR, "Spark does not run: no network")
    ]


def test_it_follows_what_the_controller_tells_also_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(told=True, silent_ms=1000)
    heard = []
    monkeypatch.setattr(turns, "lead", lambda: heard.append("lead"))
    monkeypatch.setattr(turns, "stand_by", lambda: heard.append("stand by"))
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "wb", buffering=0) as controller:
        monkeypatch.setattr(sys, "stdin", stdin)
        listening = threading.Thread(target=stream._listen, args=(turns,))
        listening.start()
        for piece in (b"le", b"ad\nstand-by\nof another version\nle", b"ad\n"):
            controller.write(piece)
        controller.close()
        listening.join(60)
    assert heard == ["lead", "stand by", "lead"]


def test_discarded_reports_are_told_with_the_hosts_that_are_known(caplog: pytest.LogCaptureFixture) -> None:
    def refused(fault: Fault, start_ms: int, host: str | None) -> Refused:
        return Refused(host=host, fault=fault, start_ms=start_ms, reports=3, last_ms=start_ms, key=None)

    flood = [refused(Fault.FLOODING, at, "h1") for at in (0, 5000)]
    driver._tell(Verdict(refused=(*flood, refused(Fault.UNKNOWN_KEY, 0, None))))

    assert caplog.messages == [
        "discarded unread, flooding: 6 reports of 'h1'",
        "discarded unread, unknown_key: 3 reports",
    ]
