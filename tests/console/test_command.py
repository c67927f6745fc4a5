"""`trimtab console` as a process under a service manager."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

from tests.console.fleet import Fleet, watching
from trimtab_console.command import in_a_line
from trimtab_console.watch import Known
from trimtab_sandbox.broker import free_ports

LIMIT_S = 60.0
PROGRAM = "from trimtab_controller.cli import main; raise SystemExit(main())"


def test_it_tells_systemd_when_it_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    [port] = free_ports(1)
    (tmp_path / "console.toml").write_text(
        f'[console]\ncluster = "c"\nport = {port}\n[kafka]\nbootstrap_servers = "127.0.0.1:9"\n'
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        command = [sys.executable, "-c", PROGRAM, "console", "--config", str(tmp_path / "console.toml")]
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "4000000"}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                told = [manager.recv(4096).decode() for _ in range(2)]
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                assert opener.open(f"http://127.0.0.1:{port}/", timeout=LIMIT_S).status == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT_S) == 0
            finally:
                process.kill()
    assert all(message.startswith("READY=1\nWATCHDOG=1\nSTATUS=") for message in told)
    assert "cluster c" in told[0]


def test_what_systemd_shows_of_it() -> None:
    known = watching(Fleet()).known
    seen = known.seen(0.0)
    assert seen
    assert in_a_line("c", Known(), 0.0) == "reads the topics of cluster c"
    assert in_a_line("c", Known(read=True), 0.0) == "no controller has reported on cluster c yet"
    away = Known(fault="Connection refused")
    assert in_a_line("c", away, 0.0) == "the topics of cluster c cannot be read: Connection refused"
    text = in_a_line("c", replace(known, read=True), seen.status.at + 3.0)
    assert text == "shows cluster c; the last status is 3 s old"
