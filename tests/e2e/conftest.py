"""A real broker for the end-to-end tests, and the check that they leave nothing running."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command_lines import command_lines
from trimtab_sandbox.broker import Broker, free_ports
from trimtab_sandbox.guard import RELEASE, start_guard
from trimtab_sandbox.marks import VARIABLE, end_marked, with_mark
from trimtab_sandbox.processes import Processes

if TYPE_CHECKING:
    from tests.e2e.played_cluster import World

RUN_MARK = f"tests-{uuid.uuid4().hex}"
"""Inherited by whatever any test starts, by whatever means."""
HERE = Path(__file__).parent
STRAGGLING_S = 60.0
"""How long a process may go on whose parent was killed while it started: it ends when it has loaded its packages."""


def pytest_configure() -> None:
    os.environ[VARIABLE] = with_mark(RUN_MARK, os.environ)[VARIABLE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


def _left_over() -> list[str]:
    """What tests have started that still runs; multiprocessing ends its tracker when the interpreter ends."""
    commands = {pid: " ".join(words) for pid, words in command_lines(RUN_MARK).items()}
    return [f"{pid} {command[:150]}" for pid, command in commands.items() if "resource_tracker" not in command]


@pytest.fixture(scope="session", autouse=True)
def guarded() -> Iterator[None]:
    """Nothing outlives the run: a killed run takes its processes along; a finished one fails if it has left any."""
    with start_guard(RUN_MARK) as guard:
        yield
        guard.communicate(RELEASE)
    deadline = time.monotonic() + STRAGGLING_S
    while (left := _left_over()) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        end_marked(RUN_MARK)
        pytest.fail(f"left over by the tests, now killed: {left}", pytrace=False)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker all tests of a run share: name topics after `unique`, and take a `private_broker` to stop it."""
    folder = tmp_path_factory.mktemp("broker")
    with Processes(folder / "logs") as processes, Broker(folder / "broker", processes) as shared:
        yield shared


@pytest.fixture
def private_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts brokers of the test's own, to be stopped and killed at will; with further settings, if given."""
    with Processes(tmp_path / "broker-logs") as processes:
        count = iter(range(100))

        def start(settings: Mapping[str, str] | None = None) -> Broker:
            broker = Broker(tmp_path / f"broker-{next(count)}", processes, settings=settings or {})
            broker.start()
            return broker

        yield start


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, for topics, groups and clusters."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def world(broker: Broker, unique: str, tmp_path: Path) -> Iterator["World"]:
    """A cluster that the test plays, for controllers as processes."""
    from tests.e2e.played_cluster import World

    made = World(broker.address, unique, tmp_path, free_ports(1)[0])
    yield made
    made.close()
