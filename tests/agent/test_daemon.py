"""The agent as a process, without a broker: it starts, says what it waits for, and ends in order."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.fuzzed.samples import HELLO, WELCOME
from tests.waiting import wait_for
from trimtab_process.credential_files import load_or_make_key
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.signing.keys import SigningKey, write_trust

LIMIT_S = 60


class Agents:
    """Agents that share one configuration file; a broker is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "a.sock"
        self.log = folder / "log"
        self.log.touch()
        self.configure()
        self.started: list[subprocess.Popen[bytes]] = []

    def configure(self, more: str = "") -> None:
        (self.folder / "agent.toml").write_text(
            f'[agent]\ncluster = "demo"\nhost = "h0"\ninterval_s = 0.2\nstate_dir = "{self.folder}/state"\n'
            f'socket = "{self.socket}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{more}'
        )

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trimtab_agent.cli", "run", "--config", str(self.folder / "agent.toml")]
        with self.log.open("ab") as log:
            self.started.append(subprocess.Popen(command, stderr=log))
        return self.started[-1]

    def await_log(self, pattern: str) -> None:
        self.wait_for(lambda: re.search(pattern, self.log.read_text()) is not None)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        wait_for(condition, log=self.log.read_text)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def test_without_a_broker_it_welcomes_workers_says_so_once_and_ends_in_order(agents: Agents) -> None:
    agent = agents.start()
    agents.await_log('event="broker away, .* reports wait 30 s.*" broker=127.0.0.1:1 detail=')
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(agents.socket))
        connection.sendall(encode_frame(HELLO))
        assert decode_frame(connection.makefile("rb").readline()) == replace(WELCOME, cluster="demo", interval_s=0.2)
        time.sleep(1.0)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(LIMIT_S) == 0

    log = agents.log.read_text()
    assert log.count('event="broker away') == 1
    assert 'level=warning event="commands are not verified: anyone who can write to their topic can steer' in log
    assert "worker=w0 app=a" in log
    assert "reason=old" in log
    assert log.splitlines()[-1].endswith('event="agent stopped; its workers keep running"')
    assert not agents.socket.exists()


def test_after_kill_it_takes_its_old_socket_over_and_shares_its_folder_with_no_other(agents: Agents) -> None:
    first = agents.start()
    agents.wait_for(agents.socket.exists)
    first.kill()
    first.wait()
    assert agents.socket.exists()

    second = agents.start()

    def answers() -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(agents.socket)) == 0

    agents.wait_for(answers)
    assert agents.start().wait(LIMIT_S) == 1
    assert "another agent uses this folder" in agents.log.read_text()
    assert second.poll() is None


def test_a_port_that_is_taken_is_one_clear_line(agents: Agents) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        agents.configure(f'[metrics]\nlisten = "{place}"\n')

        assert agents.start().wait(LIMIT_S) == 1

    last = agents.log.read_text().splitlines()[-1]
    assert f"metrics.listen: found {place}, which cannot be used: Address already in use" in last


def test_a_journal_that_is_a_folder_is_one_clear_line(agents: Agents) -> None:
    (agents.folder / "state" / "journal").mkdir(parents=True)

    assert agents.start().wait(LIMIT_S) == 1

    [line] = agents.log.read_text().splitlines()[-1:]
    assert f"agent.state_dir: {agents.folder}/state: the journal: Is a directory" in line
    assert "Traceback" not in agents.log.read_text()


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ('[trust]\nfile = "{file}"\n', "trust.file: {file}: No such file or directory"),
        (
            '[signing]\nkey_file = "{file}"\n',
            "signing.key_file: {file}: No such file or directory; `trimtab-agent enroll` creates a key",
        ),
    ],
)
def test_without_a_file_of_keys_that_it_was_told_to_use_it_does_not_start(
    agents: Agents, section: str, told: str
) -> None:
    file = agents.folder / "none"
    agents.configure(section.format(file=file))

    assert agents.start().wait(LIMIT_S) == 1
    assert told.format(file=file) in agents.log.read_text()


def test_whether_commands_are_verified_and_reports_are_signed_is_said_at_the_start(agents: Agents) -> None:
    trust, own = agents.folder / "trusted.keys", agents.folder / "host.pem"
    agents.configure(f'[trust]\nfile = "{trust}"\n[signing]\nkey_file = "{own}"\n')
    key, made = SigningKey.generate().public, load_or_make_key(own)
    trust.write_text(write_trust([key]))

    agents.start()
    agents.await_log(f'event="commands are verified" keys={key.id}')
    agents.await_log(f'event="reports and acks are signed" key={made.public.id}')


def test_systemd_hears_that_the_agent_has_started_when_workers_can_connect(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        agents.start()
        first = manager.recv(4096).decode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as worker:
            worker.connect(str(agents.socket))
        assert first.startswith("READY=1\nWATCHDOG=1\nSTATUS=Kafka at 127.0.0.1:1 does not answer")
        assert manager.recv(4096).decode() == first, "it is told again, in time for the watchdog"
