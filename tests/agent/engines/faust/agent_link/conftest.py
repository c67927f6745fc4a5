import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab_agent.engines.faust import agent_link as link_module


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        yield Path(folder) / "s"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(link_module, "LAST_RETRY_S", 0.02)
