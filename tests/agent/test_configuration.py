"""Every fault of agent.toml is one line: file, key, what was found, what was expected."""

import re
from pathlib import Path

import pytest

from trimtab_agent.cli import main
from trimtab_agent.configuration import AgentConfiguration, load_configuration
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.settings.listen import Listen

AGENT = """
[agent]
cluster = "demo"
host = "h0"
state_dir = "state"
socket = "agent.sock"
"""
KAFKA = """
[kafka]
bootstrap_servers = "127.0.0.1:9092"
"""


def load(tmp_path: Path, text: str) -> AgentConfiguration:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return load_configuration(path)


def test_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, AGENT + KAFKA)

    assert (found.interval_s, found.machine.cores, found.metrics, dict(found.workers)) == (10.0, None, None, {})
    assert (found.guard.min_free_disk_bytes, found.guard.min_free_memory_bytes) == (0, 0)
    assert found.max_crashes == 10


def test_everything(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        AGENT + "interval_s = 1\nmax_crashes = 3\n" + KAFKA + 'client = { "security.protocol" = "SSL" }\n'
        "[host]\ncores = 2\n"
        '[workers.w0]\ncapacity = 0.25\ncommand = ["python", "-m", "app"]\nenvironment = { A = "1" }\ndata_dir = "d"\n'
        'app = "orders"\n'
        "[guard]\nmin_free_disk_bytes = 1\nmin_free_memory_bytes = 2\n"
        '[metrics]\nlisten = "[::1]:9101"\n',
    )

    worker = found.workers["w0"]  # type: ignore[index]
    assert (found.interval_s, found.machine.cores, found.metrics) == (1.0, 2.0, Listen(address="::1", port=9101))
    assert (worker.capacity, worker.command, worker.data_dir) == (0.25, ("python", "-m", "app"), Path("d"))
    assert (worker.app, found.max_crashes) == ("orders", 3)
    assert (dict(worker.environment), dict(found.kafka.client)) == ({"A": "1"}, {"security.protocol": "SSL"})
    assert (found.guard.min_free_disk_bytes, found.guard.min_free_memory_bytes) == (1, 2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (KAFKA, "agent: missing, expected an object"),
        (AGENT, "kafka: missing, expected an object"),
        (AGENT + "colour = 1\n" + KAFKA, "agent.colour: found a whole number, expected no such field"),
        (AGENT + KAFKA + "[extra]\n", "extra: found an object, expected no such field"),
        (AGENT + "interval_s = 0\n" + KAFKA, "agent.interval_s: found 0, expected a finite number, 0.1 to 600"),
        (AGENT + 'interval_s = "1"\n' + KAFKA, "agent.interval_s: found a string, expected a number"),
        (AGENT + "max_crashes = 0\n" + KAFKA, "agent.max_crashes: found 0, expected 1 to 1000"),
        (AGENT + KAFKA + '[workers.w0]\napp = "a b"\n', "workers.w0.app: found 'a b', expected a name"),
        (AGENT + KAFKA + "[host]\ncores = -1\n", "host.cores: found -1, expected a finite number, 0.001 to 10000"),
        (AGENT + KAFKA + "[workers.w0]\nsize = 3\n", "workers.w0.size: found a whole number, expected no such field"),
        (AGENT + KAFKA + "[workers.w0]\ncommand = []\n", "workers.w0.command: found [], expected a program and its"),
        (
            AGENT + KAFKA + "[workers.w0]\ncommand = [3]\n",
            "workers.w0.command[0]: found a whole number, expected a word",
        ),
        (AGENT + KAFKA + '[workers."a b"]\n', "workers: found 'a b', expected a name of letters"),
        ("workers = 3\n" + AGENT + KAFKA, "workers: found a whole number, expected an object"),
        (
            AGENT + KAFKA + "[workers.w0]\nenvironment = { A = 1 }\n",
            "workers.w0.environment.A: found a whole number, expected a str",
        ),
        (
            AGENT + KAFKA + '[workers.w0]\nenvironment = { "A\\n=" = "hush" }\n',
            "workers.w0.environment.'A\\n=': found 'an invalid",
        ),
        (
            AGENT + KAFKA + '[workers.w0]\nenvironment = { A = "hu\\u0000sh" }\n',
            "workers.w0.environment.A: found 'an invalid",
        ),
        (
            AGENT + KAFKA + '[workers.w0]\ndata_dir = "a\\u0000"\n',
            "workers.w0.data_dir: found 'a text of several lines, or unprintable', expected a path",
        ),
        (
            AGENT + KAFKA + '[workers.w0]\ncommand = ["a\\u0000"]\n',
            "workers.w0.command[0]: found 'a zero character', expected none",
        ),
        (
            AGENT + KAFKA + "[host]\ncores = 0x" + "f" * 6000,
            "host.cores: found a number of many digits, expected a finite",
        ),
        ("a = " + "[" * 3000, "not TOML: "),
        ("a = " + "9" * 5000, "not TOML: "),
        (AGENT + KAFKA + '[metrics]\nlisten = "9101"\n', "metrics.listen: found '9101', expected address:port"),
        (AGENT + KAFKA + 'client = { "group.id" = "x" }\n', "kafka.client.group.id: found 'group.id', expected"),
        (AGENT.replace('"h0"', '"h 0"') + KAFKA, "agent.host: found 'h 0', expected a name"),
        (AGENT.replace("agent.sock", "s" * 120) + KAFKA, "agent.socket: found '120 bytes: sss"),
        (AGENT + KAFKA + "[metrics]\n", "metrics.listen: missing, expected a string"),
        (AGENT + KAFKA + "[trust]\n", "trust.file: missing, expected a string"),
        (AGENT + KAFKA + "[signing]\n", "signing.key_file: missing, expected a string"),
        ("[agent\n", "not TOML: "),
    ],
)
def test_faults(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'agent.toml'}: {complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        KAFKA + 'sasl_password = "hunter2"\n',
        KAFKA + 'sasl = { mechanism = "PLAIN", username = "a", password_file = "pw", passphrase = "hunter2" }\n',
        KAFKA + 'sasl = { mechanism = "PLAIN", username = "a", password_file = "hunter2" }\n',
        KAFKA + 'sasl = { mechanism = "PLAIN", username = "a", password = "hunter2" }\n',
        KAFKA + 'sasl = "hunter2"\n',
        KAFKA + 'tls = { key_password = "hunter2" }\n',
        KAFKA + 'tls = { ca = "c", certificate = "c", key = """-----BEGIN\nhunter2"""}\n',
        KAFKA + 'client = { "sasl.password" = ["hunter2"] }\n',
        KAFKA + 'client = "hunter2"\n',
        KAFKA + '[workers.w0]\npassword = "hunter2"\n',
        KAFKA + '[workers.w0]\nenvironment = "PASSWORD=hunter2"\n',
        KAFKA + '[workers.w0]\nenvironment = { PASSWORD = ["hunter2"] }\n',
        KAFKA + '[workers.w0]\ncommand = ["--password=hunter2\\u0000"]\n',
        KAFKA + '[workers.w0]\ncommand = "--password=hunter2"\n',
        KAFKA + '[passwords]\nkafka = "hunter2"\n',
    ],
)
def test_no_fault_shows_what_may_be_a_secret(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pw").touch(mode=0o600)
    Path("pw").write_text("hush\n")

    with pytest.raises(BadConfiguration) as caught:
        load(tmp_path, AGENT + text)

    assert ": found " in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("wide", [0o604, 0o640, 0o622])
@pytest.mark.parametrize("name", ["pw", "own.key"])
def test_a_password_or_a_key_that_others_can_read_is_refused(tmp_path: Path, name: str, wide: int) -> None:
    for secret in ("pw", "own.key"):
        (tmp_path / secret).touch(mode=0o600)
        (tmp_path / secret).write_text("hush\n")
    sasl = f'sasl = {{ mechanism = "PLAIN", username = "a", password_file = "{tmp_path}/pw" }}\n'
    tls = f'tls = {{ certificate = "own.pem", key = "{tmp_path}/own.key" }}\n'
    assert load(tmp_path, AGENT + KAFKA + sasl + tls).kafka.protocol == "SASL_SSL"

    (tmp_path / name).chmod(wide)

    with pytest.raises(BadConfiguration, match=f"found mode 0{wide:o}, expected 0600: others can use it"):
        load(tmp_path, AGENT + KAFKA + sasl + tls)


def test_a_bad_file_ends_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.toml"

    assert main(["run", "--config", str(missing)]) == 2

    assert capsys.readouterr().err == f"{missing}: No such file or directory\n"


def test_a_setting_that_the_kafka_client_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(AGENT + KAFKA + 'client = { "colour" = "green" }\n')

    assert main(["check", "--config", str(path)]) == 2

    assert capsys.readouterr().err == f'{path}: kafka: No such configuration property: "colour"\n'


def test_check_tells_the_basis_of_each_capacity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.toml"
    host = "[host]\ncores = 0.5\ntype = 'small'\nspeed = 2\nzone = 'rack-7'\n"
    path.write_text(AGENT + KAFKA + host + "[workers.w0]\ncapacity = 0.25\n[workers.w1]\n")

    assert main(["check", "--config", str(path)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("capacity of the host: 0.5 cores, basis config; memory: ")
    assert lines[2] == "type of the host: small, speed of a core 2.00, zone rack-7"
    assert lines[3:] == [
        "disk of the workers' state: not known (no data_dir of a worker, or it cannot be read)",
        "commands: not verified, anyone who can write to their topic can steer this host (no [trust])",
        "reports and acks: not signed (no [signing])",
        "worker w0: 0.25 cores, basis config; cannot be started (no command)",
        "worker w1: 0.5 cores, basis config; cannot be started (no command)",
    ]


def test_check_tells_the_disk_of_the_workers_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(AGENT + KAFKA + f"[host]\nspeed = 2\n[workers.w0]\ndata_dir = '{tmp_path / 'w0'}'\n[workers.w1]\n")

    assert main(["check", "--config", str(path)]) == 0

    assert re.fullmatch(
        r"disk of the workers' state: [0-9.]+ of [0-9.]+ GB free", capsys.readouterr().out.splitlines()[3]
    )


def test_check_names_folders_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, state = tmp_path / "agent.toml", tmp_path / "state"
    workers = f"[workers.w0]\ndata_dir = '{tmp_path}'\n[workers.w1]\ndata_dir = '{tmp_path / 'w1'}'\n[workers.w2]\n"
    text = AGENT.replace('"state"', f'"{state}"') + KAFKA + "[host]\nspeed = 2\n" + workers
    path.write_text(text)

    assert main(["check", "--config", str(path)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"agent.state_dir: {state} does not exist yet; the agent creates it at its start"
    assert told[1].startswith(f"workers.w1.data_dir: {tmp_path / 'w1'} does not exist; ")
    assert told[2].startswith("workers.w2.data_dir: not set, ")

    state.touch()
    assert main(["check", "--config", str(path)]) == 2
    assert f"agent.state_dir: {state} is no folder" in capsys.readouterr().err


def test_the_sample_file_is_valid_with_and_without_its_comments(tmp_path: Path) -> None:
    sample = (Path(__file__).parents[2] / "deploy" / "samples" / "agent.toml").read_text()
    head, *rest = sample.splitlines(keepends=True)
    bare = head + "".join(line.removeprefix("# ") for line in rest)

    assert dict(load(tmp_path, sample).workers) == {}
    for name in ("agent.password", "agent.key"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text("hush\n")
    full = load(tmp_path, bare.replace("/etc/trimtab", str(tmp_path)))
    assert full.workers["w0"].capacity == 1.0  # type: ignore[index]
    assert (full.kafka.protocol, full.trust) == ("SASL_SSL", tmp_path / "trusted.keys")
