import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.states import state_of
from trimtab_sandbox.marks import WORKER, end_marked
from trimtab_sandbox.processes import LeftOver, Processes
from trimtab_sandbox.state import SandboxState, StateError, forget_state, load_state

ORDERLY = """
import pathlib, signal, sys, time

def end(*_):
    with open(sys.argv[1], "a") as order:
        order.write(sys.argv[2] + " ")
    sys.exit()

signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(60)
"""


RECORD = {
    "version": 1, "cluster": "c", "mark": "m", "bootstrap_servers": "b:9", "sockets": "/tmp/trimtab-x", "processes": {},
    "ports": {},
}  # fmt: skip


@pytest.fixture
def released(tmp_path: Path) -> Iterator[SandboxState]:
    """A sandbox whose processes write down in which order they end; w1 stands for a worker that an agent started."""
    processes = Processes(tmp_path / "logs")
    try:
        children = {}
        for name in ("broker", "h0", "w0", "controller", "w1"):
            command = [sys.executable, "-c", ORDERLY, str(tmp_path / "order"), name]
            children[name] = processes.start(name, command, environment={WORKER: name} if name[0] == "w" else {})
        for child in children.values():
            while not child.log.read_text():
                assert child.alive
                time.sleep(0.02)
        processes.release()
        (tmp_path / "sockets").mkdir()
        own = {name: child for name, child in children.items() if name != "w1"}
        yield state_of(processes, own, tmp_path / "sockets", ports={"broker": (9, 10)})
    finally:
        end_marked(processes.mark)


def test_what_is_saved_is_loaded(released: SandboxState, tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    released.save(tmp_path)
    assert load_state(tmp_path) == released
    forget_state(tmp_path)
    assert load_state(tmp_path) is None


def test_a_record_is_found_by_every_name_of_its_folder(
    released: SandboxState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released.save(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    for name in (Path(tmp_path.name), Path(".", tmp_path.name, "..", tmp_path.name), tmp_path / "link"):
        assert load_state(name) == released


def test_all_end_in_order_and_only_once(released: SandboxState, tmp_path: Path) -> None:
    assert released.alive() == dict.fromkeys(("broker", "h0", "w0", "controller"), True)
    assert released.end() == LeftOver(processes=0, ports=0)
    controller, *workers, agent, broker = (tmp_path / "order").read_text().split()
    assert (controller, sorted(workers), agent, broker) == ("controller", ["w0", "w1"], "h0", "broker")
    assert not any(released.alive().values())
    assert not released.sockets.exists()
    assert released.end().nothing


def test_an_id_that_belongs_to_somebody_else_now_is_left_alone(released: SandboxState) -> None:
    stranger = replace(released, mark="another")
    assert not any(stranger.alive().values())
    assert stranger.end().nothing
    assert all(released.alive().values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no record of a sandbox"),
        ("[]", "is no record of a sandbox"),
        ('{"version": 1}', "is no record of a sandbox: cluster: missing, expected"),
        (json.dumps({**RECORD, "version": 2}), "version: found 2, expected 1"),
        ("[" * 5000, "is no record of a sandbox: "),
        (json.dumps({**RECORD, "sockets": "/"}), "sockets: found '/', expected a folder that a sandbox has made"),
        (json.dumps({**RECORD, "processes": {"broker": {"pid": -1, "log": "l"}}}), "processes.broker.pid: found -1"),
        (json.dumps({**RECORD, "ports": {"broker": ["9"]}}), r'ports.broker\[0\]: found "9", expected a whole number'),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StateError, match=message):
        load_state(tmp_path)
