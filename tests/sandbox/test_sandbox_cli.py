import argparse
import sys
from pathlib import Path

import pytest

from tests.sandbox.states import state_of
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import make_socket_folder
from trimtab_sandbox.command import LOG_LINES, UsageError, read_settings, run
from trimtab_sandbox.marks import WORKER, end_marked
from trimtab_sandbox.parser import add_options
from trimtab_sandbox.processes import Processes
from trimtab_sandbox.state import load_state


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser, "sandbox")
    return parser.parse_args(arguments)


def trimtab(*arguments: str) -> int:
    return run(parse(*arguments))


def test_without_an_app_the_flights_run() -> None:
    settings, topics = read_settings(parse("up"))
    assert (settings.app, settings.app_folder.name, settings.workers) == ("flights.app:app", "examples", 4)
    assert settings.environment["FLIGHTS_BROKER"] == "{broker}"
    assert Topic(name="flights", partitions=64) in topics
    assert set(read_settings(parse("up", "--idle"))[0].environment) == set(settings.environment) - {"FLIGHTS_WORK"}


def test_an_app_of_ones_own(tmp_path: Path) -> None:
    options = ["--app", "shop:app", "--app-folder", str(tmp_path), "--workers", "2", "--capacity", "0.5"]
    settings, topics = read_settings(parse("up", *options, "--topic", "orders:8", "--env", "A=b=c"))
    assert (settings.app, settings.app_folder, settings.workers) == ("shop:app", tmp_path, 2)
    assert settings.capacity_of(1) == 0.5
    assert settings.environment == {"A": "b=c"}
    assert topics == [Topic(name="orders", partitions=8)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--app", "shop"], "app: found 'shop', expected module:attribute"),
        (["--app", "shop:app", "--env", "A"], "--env: found 'A', expected NAME=VALUE"),
        (["--topic", "orders"], "--topic: found 'orders', expected NAME:PARTITIONS"),
        (["--topic", "orders:0"], "--topic: found 'orders:0', expected NAME:PARTITIONS"),
        (["--workers", "0"], "workers: found 0, expected 1 to 64"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(parse("up", *options))
    assert str(refused.value) == message


@pytest.mark.parametrize("action", ["status", "down"])
def test_without_a_sandbox_there_is_nothing_to_see(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trimtab(action, "--folder", str(tmp_path)) == 1
    assert capsys.readouterr().err == (
        f"trimtab sandbox: no sandbox in {tmp_path}: start one with `trimtab sandbox up`\n"
    )


def test_a_folder_with_other_things_in_it_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "thesis.txt").write_text("years of work")
    assert trimtab("up", "--folder", str(tmp_path)) == 1
    assert "contains files that are not a sandbox's (thesis.txt): choose another --folder" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_readmes_commands_end_what_they_started_in_the_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "out" / "sandbox"
    processes = Processes(folder / "logs")
    child = processes.start("w0", [sys.executable, "-c", "import time; time.sleep(60)"])
    processes.release()
    try:
        state_of(processes, {"w0": child}, make_socket_folder(folder)).save(folder)

        assert trimtab("status") == 0
        assert trimtab("down") == 0
        assert capsys.readouterr().out.endswith(f"stopped; data and logs are kept in {folder}\n")
        assert not child.alive
        assert trimtab("status") == 1
    finally:
        end_marked(processes.mark)


def test_without_faust_nothing_is_started_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "faust", None)
    assert trimtab("up", "--folder", str(tmp_path / "sandbox")) == 1
    assert capsys.readouterr().err == (
        "trimtab sandbox: workers cannot start: faust not installed; add the extra `faust`: "
        "pip install '.[controller,faust]'\n"
    )
    assert not (tmp_path / "sandbox").exists()


def test_status_and_down_of_what_is_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    processes = Processes(tmp_path / "logs")
    child = processes.start("broker", [sys.executable, "-c", "import time; time.sleep(60)"])
    processes.release()
    try:
        state_of(processes, {"broker": child}, tmp_path / "sockets").save(tmp_path)
        folder, toml = ("--folder", str(tmp_path)), tmp_path / "controller" / "controller.toml"

        assert trimtab("status", *folder) == 0
        assert trimtab("up", *folder) == 1
        assert capsys.readouterr() == (
            f"cluster c, broker at 127.0.0.1:9\n  broker       pid {child.pid:<8} alive  {child.log}\n"
            f"windows and plans: unknown: {toml}: No such file or directory\nmore: trimtab status --config {toml}\n",
            f"trimtab sandbox: a sandbox is already running in {tmp_path}: end it first with `trimtab sandbox down`\n",
        )
        assert child.alive

        child.kill()
        child.log.write_text("".join(f"line {number}\n" for number in range(LOG_LINES + 1)))
        assert trimtab("status", *folder) == 1
        shown = capsys.readouterr().out.splitlines()
        assert shown[1] == f"  broker       pid {child.pid:<8} ENDED  {child.log}"
        assert shown[2:-2] == [f"      line {number}" for number in range(1, LOG_LINES + 1)]
        assert shown[-2] == "windows and plans: unknown, the broker does not run"
        assert trimtab("down", *folder) == 0
        assert load_state(tmp_path) is None
        assert child.log.exists()
    finally:
        end_marked(processes.mark)


def test_a_worker_that_its_agent_has_started_is_shown_and_ends_with_the_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    processes = Processes(tmp_path / "logs")
    started = {name: processes.start(name, sleep, environment={WORKER: name}) for name in ("w0", "w1")}
    again, pool = (processes.start("other", sleep, environment={WORKER: name}) for name in ("w1", "w2"))
    processes.release()
    try:
        started["w1"].kill()
        state_of(processes, started, tmp_path / "sockets").save(tmp_path)

        assert trimtab("status", "--folder", str(tmp_path)) == 0
        assert capsys.readouterr().out.splitlines()[1:4] == [
            f"  w0           pid {started['w0'].pid:<8} alive  {started['w0'].log}",
            f"  w1           pid {again.pid:<8} alive  started by its agent",
            f"  w2           pid {pool.pid:<8} alive  started by its agent",
        ]
        assert trimtab("down", "--folder", str(tmp_path)) == 0
        assert capsys.readouterr().out == (
            f"workers that their agents have started end, too: w1, w2\nstopped; data and logs are kept in {tmp_path}\n"
        )
        assert not any(child.alive for child in (started["w0"], again, pool))
    finally:
        end_marked(processes.mark)
